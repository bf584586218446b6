"""Single inputs of clusters: asked for, of images, and never of clients elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from srfca import ClientData, InputError, Result, Simulation
from srfca.analysis import Analysis, analyze
from srfca.analysis.sample_inputs import sample_inputs
from tests.methods.helpers import DropByNumber


def test_samples_are_kept_only_if_they_are_asked_for(
    analysis: Analysis, result: Result, federation: Simulation, tmp_path: Path
) -> None:
    assert analysis.differences is not None
    assert all(part.sample_inputs == () for part in analysis.differences.by_cluster)
    asked = analyze(result, federation, input_shape=(8, 8), sample_inputs=3)
    assert asked.differences is not None
    for part in asked.differences.by_cluster:
        assert [sample.target for sample in part.sample_inputs] == [0, 1, 2]
        for sample in part.sample_inputs:
            client = federation.client_ids.index(sample.client)
            assert result.labels[client] == part.cluster
            x, y = federation.data.train.of(client)
            of_class = x[y == sample.target].double().reshape(-1, 64)
            values = torch.tensor(sample.values, dtype=torch.float64)
            assert (of_class - values).abs().amax(1).min() < 1e-3
    asked.save(tmp_path)
    loaded = Analysis.load(tmp_path)
    assert loaded.differences == asked.differences


def test_samples_of_tables_are_not_kept(result: Result, federation: Simulation) -> None:
    asked = analyze(result, federation, sample_inputs=3)
    assert asked.differences is not None
    assert all(part.sample_inputs == () for part in asked.differences.by_cluster)


def test_clients_elsewhere_send_no_samples(result: Result, federation: Simulation) -> None:
    with pytest.raises(InputError, match="which only a Simulation has"):
        analyze(result, DropByNumber(federation), sample_inputs=1)
    with pytest.raises(InputError, match="at least 0, not -1"):
        analyze(result, federation, sample_inputs=-1)


def test_every_class_begins_with_another_client() -> None:
    x, y = np.arange(6, dtype=np.float32), np.array([0, 0, 1, 1, 2, 2])
    data = ClientData.from_arrays({"a": (x, y), "b": (x + 10, y), "c": (x[:2] + 20, y[:2])})
    shown = sample_inputs(data, np.array([0, 0, 0]), 0, 3)
    assert [(s.client, s.target, s.values) for s in shown] == [
        ("a", 0, (0.0,)), ("b", 1, (12.0,)), ("a", 2, (4.0,)),
    ]  # fmt: skip


def test_values_are_shown_without_a_class() -> None:
    x = np.zeros((2, 2, 2), dtype=np.float32)
    data = ClientData.from_arrays({"a": (x, x[:, 0, 0]), "b": (x + 1, x[:, 0, 0])})
    shown = sample_inputs(data, np.array([0, 0]), 0, 5)
    assert [(sample.client, sample.target) for sample in shown] == [("a", None), ("b", None)]
