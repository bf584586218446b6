from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import Result, Simulation
from srfca.analysis import evidence as module
from srfca.analysis.evidence import blocks, collect_evidence
from srfca.federation import BootstrapLosses
from tests.methods.helpers import DropByNumber, losses


def test_training_and_held_out_data_count(result: Result, federation: Simulation) -> None:
    collected = collect_evidence(federation, result.models, result.labels, 20, 0)
    train = losses(federation, result.models, split="train").double().numpy()
    held = losses(federation, result.models, split="validation").double().numpy()
    sizes = np.stack([federation.sizes_of("train"), federation.sizes_of("validation")], 1)
    everyone = np.arange(24)
    expected = (train * sizes[:, :1] + held * sizes[:, 1:]) / sizes.sum(1, keepdims=True)
    np.testing.assert_allclose(collected.losses, expected, atol=1e-5)
    assert collected.samples.tolist() == sizes.sum(1).tolist()
    assert (collected.best == result.labels).all()
    assert (collected.variances[everyone, collected.best] == 0).all()
    assert (collected.variances[everyone, 1 - collected.best] > 0).all()


def test_blocks_of_clients_do_not_change_the_evidence(
    result: Result, federation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = collect_evidence(federation, result.models, result.labels, 20, 0)
    monkeypatch.setattr(module, "_BLOCK", 500)
    counting = DropByNumber(federation)
    collected = collect_evidence(counting, result.models, result.labels, 20, 0)
    assert sum(isinstance(request, BootstrapLosses) for request in counting.requests) > 3
    np.testing.assert_allclose(collected.losses, expected.losses, atol=1e-6)
    np.testing.assert_allclose(collected.shares, expected.shares)


def test_blocks_hold_every_client_once() -> None:
    parts = list(blocks(np.arange(10), np.full(10, module._BLOCK // 2)))
    assert np.concatenate(parts).tolist() == list(range(10))
    assert max(map(len, parts)) <= 3
    assert [part.tolist() for part in blocks(np.arange(3), np.ones(3, np.int64))] == [[0, 1, 2]]


def test_missing_replies_are_unknown(result: Result, federation: Simulation) -> None:
    lossy = DropByNumber(federation, {0: [5, 7]})
    collected = collect_evidence(lossy, result.models, result.labels, 20, 0)
    assert [type(request) for request in lossy.requests] == [BootstrapLosses]
    assert np.flatnonzero(np.isnan(collected.losses).any(1)).tolist() == [5, 7]
    assert collected.best[[5, 7]].tolist() == [-1, -1]
    assert collected.samples[5] == 0


def test_models_of_clients_alone_are_not_compared(result: Result, federation: Simulation) -> None:
    labels = result.labels.copy()
    labels[0] = 2
    models = torch.cat([result.models, result.models[:1] + 1.0])
    collected = collect_evidence(federation, models, labels, 20, 0)
    assert collected.clusters.tolist() == [0, 1]
    assert collected.losses.shape == (24, 2)
