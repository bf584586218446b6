"""Sparse ternary compression: codes, error feedback, rounds by hand, and what is counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from srfca import FedAvg, InputError, LocalTraining, Simulation
from srfca.federation import Privacy, Private, Train
from srfca.federation.compression import (
    ResidualStore,
    decode,
    encode,
    num_words,
    sparse_ternary,
)
from srfca.methods import Ditto, FedPer, Scaffold
from srfca.models import linear, mlp
from srfca.random import Key
from srfca.testing import check_method
from srfca.testing.method_case import LOCAL as CHECKED
from tests import examples
from tests.methods.helpers import DIGITS, Array, digits

COMPRESSED = replace(CHECKED, compress=0.2)


@pytest.mark.parametrize("length", [1, 2, 53, 1000])
@pytest.mark.parametrize("fraction", [0.001, 0.01, 0.1, 0.3, 0.5, 0.9, 1.0])
def test_a_code_is_decoded(length: int, fraction: float) -> None:
    generator = torch.Generator().manual_seed(length)
    for density in (0.0, 0.1, 1.0):
        change = torch.randn(length, generator=generator)
        change *= torch.rand(length, generator=generator) < density
        update = sparse_ternary(change, fraction)
        code = encode(update, fraction)
        assert len(code) == num_words(length, fraction)
        assert torch.equal(decode(code, length, fraction), update)


def test_gaps_may_all_be_at_one_end() -> None:
    """The longest codes: all coordinates far away, or one after another."""
    for places in (slice(0, 20), slice(1980, 2000)):
        change = torch.zeros(2000)
        change[places] = torch.linspace(-1.0, 1.0, 20)
        update = sparse_ternary(change, 0.01)
        assert torch.equal(decode(encode(update, 0.01), 2000, 0.01), update)


def test_at_one_percent_a_code_is_a_three_hundredth_of_single_precision() -> None:
    assert 4_000_000 / (8 * num_words(1_000_000, 0.01)) > 300


@pytest.mark.parametrize(
    "code",
    [
        torch.zeros(4, dtype=torch.int64) - 1,
        torch.tensor([5, -1, -1, -1]),
        torch.tensor([5 + (0x7F800000 << 32), 0, 0, 0]),
        torch.tensor([400, 0, 0, 0]),
        torch.tensor([], dtype=torch.int64),
        torch.zeros(3, dtype=torch.int64),
    ],
)
def test_nonsense_is_no_code(code: Tensor) -> None:
    with pytest.raises(InputError, match="update"):
        decode(code, 100, 0.1)


def request(starts: Tensor, number: int, **settings: float) -> Train:
    local = LocalTraining(steps=9, local_steps=3, **settings)  # type: ignore[arg-type]
    return Train(np.arange(len(starts)), starts, local, Key(0, "test", number))


def test_what_is_not_sent_is_added_to_the_next_update() -> None:
    """Error feedback: all that was sent, and what is left, is the sum of all updates."""
    store, total, sent = ResidualStore(), torch.zeros(2, 40), torch.zeros(2, 40)
    generator = torch.Generator().manual_seed(0)
    for number in range(3):
        changes = torch.randn(2, 40, generator=generator)
        total += changes
        sent += store.compress(request(changes, number, compress=0.1), changes, ["a", "b"])
    left = store.values[0, "test"]
    torch.testing.assert_close(sent + torch.stack([left["a", 0], left["b", 0]]), total)
    changes = torch.ones(2, 40)
    store.compress(request(changes, 0, compress=0.1), changes, ["a", "b"])
    assert store.values[0, "test"]["a", 0].abs().max() <= 1, "round 0 restarts"


def test_two_rounds_by_hand() -> None:
    made = examples.regression([6, 18], d=5, clusters=2)
    federation = Simulation(made, examples.doubled(linear(5, bias=False)), validation=0)
    samples = [tuple(t.numpy() for t in federation._samples["train"].of(c)) for c in range(2)]
    w, residuals = np.zeros(5), [np.zeros(5), np.zeros(5)]
    for _ in range(2):
        sent = []
        for i, (x, y) in enumerate(samples):
            row: Array = w
            for _ in range(2):
                row = row - 0.05 * 2 / len(y) * x.T @ (x @ row - y)
            update = row - w + residuals[i]
            largest = np.argsort(-np.abs(update))[:2]
            ternary = np.zeros(5)
            ternary[largest] = np.sign(update[largest]) * np.float32(np.abs(update[largest]).mean())
            residuals[i] = update - ternary
            sent.append(w + ternary)
        w = (6 * sent[0] + 18 * sent[1]) / 24
    local = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.05, compress=0.4)
    result = FedAvg(local=local).fit(federation)
    np.testing.assert_allclose(result.models[0].numpy(), w, rtol=1e-9)


def test_it_saves_nearly_all_of_the_upload_and_little_is_lost() -> None:
    """The paper's claim, in a small form; error feedback is what it rests on."""
    federation = digits(num_clients=12, rotations=1)
    local = replace(DIGITS, steps=200)
    dense = FedAvg(local=local).fit(federation)
    sparse = FedAvg(local=replace(local, compress=0.02)).fit(federation)
    accuracies = [float(r.scores(federation).accuracy.mean()) for r in (dense, sparse)]  # type: ignore[union-attr]
    assert accuracies[1] > accuracies[0] - 0.03
    assert sparse.budget.bytes_up < dense.budget.bytes_up / 100
    words = num_words(2410, 0.02)
    assert sparse.budget.bytes_up == sparse.budget.models_up * 8 * words
    assert sparse.budget.models_up == dense.budget.models_up


@pytest.mark.parametrize(
    "method", [FedAvg(local=COMPRESSED), FedPer(local=COMPRESSED), Scaffold(local=COMPRESSED)]
)
def test_methods_pass_their_checks_with_compression(method: FedAvg) -> None:
    """Also when they are killed: what clients have not sent is trained again."""
    check_method(method, skip=["declaration", "parameters"])


def test_models_that_are_not_sent_are_not_compressed() -> None:
    federation = digits(num_clients=6, rotations=1)
    local = LocalTraining(steps=10, batch_size=10, lr=0.1, compress=0.01)
    result = Ditto(local=local).fit(federation)
    moved = (result.client_models - federation.initial_model(0)) != 0
    assert moved.float().mean() > 0.5


def test_buffers_cannot_be_compressed() -> None:
    federation = Simulation(
        examples.classification([12] * 3, shape=(1, 6, 6)), examples.batch_normed
    )
    local = LocalTraining(steps=4, compress=0.1)
    with pytest.raises(InputError, match=r"compress=0\.1 is for models without buffers"):
        FedAvg(local=local).fit(federation)


def test_private_clients_do_not_compress() -> None:
    private = Private(Simulation(examples.classification([12] * 3), mlp(6, 5, 3)), Privacy())
    with pytest.raises(InputError, match="private clients change every coordinate"):
        FedAvg(local=COMPRESSED).fit(private)


def test_a_journal_has_what_is_left_over(tmp_path: Path) -> None:
    """A run that resumes from a complete journal, and one that does not, are the same."""
    federation = digits(num_clients=6, rotations=1)
    method = FedAvg(local=LocalTraining(steps=15, batch_size=10, lr=0.1, compress=0.05))
    first = method.fit(federation, journal=tmp_path)
    again = method.fit(federation, journal=tmp_path)
    assert torch.equal(first.models, again.models)
    assert first.budget == again.budget
