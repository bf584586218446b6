from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import Global, Partition, Simulation, Work
from srfca.aggregation import mean
from srfca.errors import InputError
from srfca.methods import FeSEM
from srfca.methods.fesem import expectation, k_means
from srfca.models import mlp
from srfca.random import Key
from tests import examples
from tests.loop_federation import LoopFederation
from tests.test_ifca import DIGITS, digits, regressions, samples

WORK = Work(steps=30, local_steps=3, batch_size=10, lr=0.05)


@pytest.mark.parametrize("weighted", [True, False])
def test_rounds_are_those_of_a_plain_loop(weighted: bool) -> None:
    federation = regressions(validation=0)
    clients = samples(federation.data)
    n = np.array([len(y) if weighted else 1.0 for _, y in clients])
    work = Work(steps=12, local_steps=3, batch_size=None, lr=0.05)

    def trained(starts: np.ndarray) -> np.ndarray:
        rows = []
        for (x, y), start in zip(clients, starts, strict=True):
            w = start.copy()
            for _ in range(3):
                w -= 0.05 * 2 * x.T @ (x @ w - y) / len(y)
            rows.append(w)
        return np.array(rows)

    def centres_of(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.array(
            [np.average(rows[labels == c], axis=0, weights=n[labels == c]) for c in range(3)]
        )

    truth = federation.data.truth
    assert truth is not None
    rows = trained(np.zeros((12, 5)))
    labels = truth.labels  # what k-means finds, as is checked by the result
    centres = centres_of(rows, labels)
    for _ in range(3):
        rows = trained(centres[labels])
        labels = ((rows[:, None] - centres) ** 2).sum(-1).argmin(1)
        centres = centres_of(rows, labels)
    result = FeSEM(k=3, weighted=weighted, work=work).fit(federation)
    assert result.partition == Partition(labels)
    np.testing.assert_allclose(result.models.numpy(), centres, rtol=1e-9, atol=1e-9)


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_neither_step_makes_the_distances_longer(seed: int, k: int) -> None:
    """The paper's objective: the mean squared distance of the models to their centres."""
    rng = np.random.default_rng(seed)
    rows, centres = torch.tensor(rng.normal(size=(9, 4))), torch.tensor(rng.normal(size=(k, 4)))
    labels = rng.integers(0, k, 9)

    def objective() -> float:
        return float((rows - centres[torch.tensor(labels)]).square().sum(1).mean())

    before = objective()
    labels = expectation(rows, centres)
    squares = [[float((row - centre).square().sum()) for centre in centres] for row in rows]
    assert labels.tolist() == [each.index(min(each)) for each in squares]
    between = objective()
    for c in set(labels.tolist()):
        centres[c] = mean(rows[torch.tensor(labels == c)])
    assert objective() <= between + 1e-12 <= before + 2e-12


def test_k_means_is_that_of_the_key() -> None:
    rows = torch.tensor([[0.0, 0.0], [0.1, 0.0], [9.0, 9.0], [9.0, 9.1], [0.0, 9.0]])
    assert Partition(k_means(rows, 3, Key(0, "x"))) == Partition([0, 0, 1, 1, 2])
    noise = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    again, same, other = (k_means(noise, 6, Key(seed, "x")) for seed in (0, 0, 1))
    assert np.array_equal(again, same)
    assert not np.array_equal(again, other)


def test_buffers_do_not_count() -> None:
    made = examples.permuted_digits_of_unequal_scale()
    federation = Simulation(made, examples.batch_normed_mlp)
    work = Work(steps=60, local_steps=20, batch_size=10, lr=0.1)
    assert FeSEM(k=2, work=work).fit(federation).partition == made.truth


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_rotations_and_beats_one_model(seed: int) -> None:
    federation = digits(seed)
    result = FeSEM(k=4, work=DIGITS).fit(federation, seed)
    truth = federation.data.truth
    assert truth is not None
    assert result.partition.misclustering(truth) <= 0.05
    alone = Global(work=DIGITS).fit(federation, seed)
    mine, theirs = (float(r.scores(federation).loss.mean()) for r in (result, alone))
    assert mine < 0.8 * theirs


def test_a_client_in_the_wrong_cluster_stays_there() -> None:
    """What it loses by: a short round leaves a model near the centre it began from."""
    made = examples.regression([40] * 8, clusters=2)
    federation = Simulation(made, examples.doubled(mlp(4, 1)))
    truth = made.truth
    assert truth is not None
    rows = [federation.fit(
        federation.initial(0).expand(4, -1), members.tolist(), replace(WORK, local_steps=30),
        Key(0, "x"),
    ).mean(0) for members in truth]  # fmt: skip
    centres = torch.stack(rows)
    wrong = federation.fit(centres[[1]], [0], replace(WORK, local_steps=1), Key(0, "y"))
    assert int(federation.losses(centres, [0]).argmin()) == 0, "its loss knows better"
    assert expectation(wrong, centres).tolist() == [1], "its model does not"


def test_participation_and_budget() -> None:
    federation = regressions()
    options = FeSEM(k=3, participation=0.5, work=WORK)
    assert options.trainings == pytest.approx(0.55)
    result = options.fit(federation)
    assert result.partition == federation.data.truth
    assert result.budget.local_steps == 12 * 3 + 9 * 6 * 3, "everybody in the first round"
    assert result.budget.evaluations == 0, "no client evaluates anything"
    assert len(result.history[-1].notes["changed"]) == 9


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_the_same_seed_gives_the_same_answer_on_any_backend(participation: float) -> None:
    made = examples.classification([20 + i % 3 for i in range(8)])
    model = examples.doubled(mlp(6, 5, 3))
    method = FeSEM(k=3, participation=participation, work=replace(WORK, steps=12))
    expected = method.fit(LoopFederation(made, model), seed=2)
    for block_size in (1, 3):
        found = method.fit(Simulation(made, model, block_size=block_size), seed=2)
        assert np.array_equal(found.labels, expected.labels)
        torch.testing.assert_close(found.models, expected.models, rtol=1e-9, atol=1e-9)
    other = method.fit(Simulation(made, model), seed=3)
    assert not torch.allclose(found.client_models, other.client_models)


def test_parameters_are_checked() -> None:
    with pytest.raises(InputError, match="k must be at least 1, not 0"):
        FeSEM(k=0)
    with pytest.raises(InputError, match="participation"):
        FeSEM(participation=0.0)
    with pytest.raises(InputError, match="k=13 is more than the 12 clients"):
        FeSEM(k=13, work=WORK).fit(regressions())
