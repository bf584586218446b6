"""IFCA: rounds against a plain loop, its theorem in a small form, starts and restarts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from srfca import ClientData, FedAvg, InputError, LocalTraining, Partition, Simulation, data
from srfca.federation import Federation, Losses, Middleware, Replies, Request, Subsample, Train
from srfca.federation.replies import T
from srfca.methods import IFCA, Oracle, Run
from srfca.methods._common.rounds import Exchange
from srfca.methods.ifca import num_moved, shared_coordinates
from srfca.models import linear, mlp
from srfca.random import Key
from srfca.testing import ReferenceFederation
from tests import examples
from tests.methods.helpers import (
    DIGITS,
    LOCAL,
    DropByNumber,
    arrays,
    digits,
    ifca_by_hand,
    losses,
    regressions,
    train,
    training_losses,
)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=20)
def test_rounds_are_those_of_a_plain_loop(seed: int, k: int, rounds: int, local_steps: int) -> None:
    federation = regressions(validation=0)
    start = 3 * torch.randn(k, 5, generator=torch.Generator().manual_seed(seed)).double()
    local = LocalTraining(
        steps=rounds * local_steps, local_steps=local_steps, batch_size=None, lr=0.05
    )
    result = IFCA(k=k, start=start, local=local).fit(federation)
    models, labels = ifca_by_hand(arrays(federation.data), start.numpy(), rounds, local_steps, 0.05)
    assert result.partition == Partition(labels)
    used = list(dict.fromkeys(labels))
    np.testing.assert_allclose(result.models.numpy(), models[used], rtol=1e-9, atol=1e-9)
    assert result.history[-1].notes["empty"] == [c for c in range(k) if c not in labels]


@pytest.mark.parametrize(("server_lr", "rate"), [(None, 0.05), (0.2, 0.2)])
def test_the_server_steps_along_gradients(server_lr: float | None, rate: float) -> None:
    federation = regressions(validation=0)
    start = torch.tensor([[1.0] * 5, [-1.0] * 5]).double()
    options = IFCA(
        k=2, exchange="gradients", start=start, server_lr=server_lr, weighted=False,
        local=replace(LOCAL, steps=1),
    )  # fmt: skip
    result = options.fit(federation)
    clients = arrays(federation.data)
    chosen = training_losses(clients, start.numpy()).argmin(0)
    assert set(chosen) == {0, 1}
    for c in (0, 1):
        slopes = [
            2 * x.T @ (x @ start[c].numpy() - y) / len(y)
            for (x, y), label in zip(clients, chosen, strict=True)
            if label == c
        ]
        expected = start[c].numpy() - rate * np.mean(slopes, axis=0)
        gaps = np.abs(result.models.numpy() - expected).max(1)
        assert gaps.min() < 1e-9
    assert result.budget.local_steps == 12, "one gradient of each client"


def test_the_rate_of_the_server_follows_the_schedule() -> None:
    federation = regressions(validation=0)
    start = torch.tensor([[1.0] * 5]).double()
    local = replace(LOCAL, steps=4, local_steps=1, batch_size=None, schedule="linear")
    models = IFCA(k=1, start=start, local=local).fit(federation)
    gradients = IFCA(k=1, start=start, exchange="gradients", local=local).fit(federation)
    torch.testing.assert_close(gradients.models, models.models, rtol=1e-9, atol=1e-9)


def optima(federation: Simulation) -> Tensor:
    """Return the least-squares solution of each true cluster: ``[k, 5]``."""
    truth, clients = federation.data.truth, arrays(federation.data)
    assert truth is not None
    solutions = [
        np.linalg.lstsq(
            np.concatenate([clients[i][0] for i in members]),
            np.concatenate([clients[i][1] for i in members]),
            rcond=None,
        )[0]
        for members in truth
    ]
    return torch.tensor(np.array(solutions))


@pytest.mark.parametrize("exchange", ["models", "gradients"])
@pytest.mark.parametrize("seed", range(3))
def test_it_converges_to_the_optima_from_a_good_start(exchange: Exchange, seed: int) -> None:
    """The paper's theorem: starts within half of the least distance between two optima."""
    federation = regressions(validation=0)
    best = optima(federation)
    gaps = torch.cdist(best, best)[*np.triu_indices(3, 1)]
    noise = torch.randn(3, 5, generator=torch.Generator().manual_seed(seed)).double()
    start = best + 0.4 * gaps.min() * noise / noise.norm(dim=1, keepdim=True)
    local = LocalTraining(steps=120, local_steps=1, batch_size=None, lr=0.1)
    result = IFCA(k=3, exchange=exchange, start=start, local=local).fit(federation)
    assert result.partition == federation.data.truth
    assert sum(result.history[-1].notes["changed"]) == 0, "every first choice was right"
    torch.testing.assert_close(result.models, best, rtol=0, atol=1e-4)


def test_all_models_but_one_are_unused_from_a_bad_start() -> None:
    """Targets <x, w> and -<x, w>; 3w is farther from both than w, and than all between them."""
    g = torch.Generator().manual_seed(0)
    w = torch.tensor([1.0, 2.0, -1.0, 0.5]).double()
    x = torch.randn(10, 30, 4, generator=g).double()
    sign = torch.tensor([1.0, -1.0] * 5).double()
    y = (x @ w) * sign.unsqueeze(1)
    made = ClientData.from_arrays(list(zip(x, y, strict=True)), truth=[0, 1] * 5)
    federation = Simulation(made, examples.doubled(linear(4, bias=False)), validation=0)
    local = LocalTraining(steps=100, local_steps=2, batch_size=None, lr=0.1)
    bad = IFCA(k=2, start=torch.stack([w, 3 * w]), local=local).fit(federation)
    assert bad.partition == Partition([0] * 10)
    assert bad.history[-1].notes["empty"] == [1]
    assert float(bad.models[0].norm()) < 0.3 * float(w.norm()), "a compromise between w and -w"
    good = IFCA(k=2, start=torch.stack([0.1 * w, -0.1 * w]), local=local).fit(federation)
    assert good.partition == made.truth
    torch.testing.assert_close(good.models, torch.stack([w, -w]), rtol=1e-3, atol=1e-3)


def check_starts(federation: Simulation, local: LocalTraining, seed: int) -> None:
    """Compare a good start, the true clusters after a few steps, with one model that is ahead."""
    truth = federation.data.truth
    first = replace(local, steps=local.steps // 4)
    good = Oracle(truth=truth, local=first).fit(federation, seed).models
    ahead = FedAvg(local=first).fit(federation, seed).models
    bad = torch.cat([torch.stack([federation.initial_model(100 + j) for j in range(3)]), ahead])
    result, failed = (IFCA(k=4, start=s, local=local).fit(federation, seed) for s in (good, bad))
    assert result.partition == truth
    assert failed.partition.num_clusters == 1, "no client chooses the others, so they never train"
    assert failed.history[-1].notes["empty"] == [0, 1, 2]
    accuracy, worse = (outcome.scores(federation).accuracy for outcome in (result, failed))
    assert accuracy is not None
    assert worse is not None
    assert float(accuracy.mean()) > float(worse.mean()) + 0.03
    equal = federation.initial_model(seed).repeat(4, 1)
    copies = IFCA(k=4, start=equal, local=replace(local, steps=10)).fit(federation, seed)
    assert copies.history[-1].notes["empty"] == [1, 2, 3], "the first of equal models is chosen"


def test_rotated_digits_from_good_and_bad_starts() -> None:
    check_starts(digits(), DIGITS, seed=0)


def test_rotated_mnist_from_good_and_bad_starts(real_data: Callable[[str], Path]) -> None:
    made = data.rotated_mnist(num_clients=24, sizes=120, folder=real_data("mnist"))
    local = LocalTraining(steps=60, local_steps=5, batch_size=50, optimizer="adam", lr=0.006)
    check_starts(Simulation(made, mlp(784, 50, 10)), local, seed=0)


def test_random_starts_find_the_rotations() -> None:
    federation = digits()
    result = IFCA(k=4, restarts=4, local=DIGITS).fit(federation)
    assert result.partition == federation.data.truth


class Scripted(Middleware):
    """A federation in which nothing is learned: the loss of each start is in a table."""

    def __init__(self, federation: Federation, means: list[float]) -> None:
        super().__init__(federation)
        self.means = means
        self.seeds: list[int] = []

    def initial_model(self, seed: int) -> Tensor:
        """Return a model full of n, for the n-th seed."""
        if seed not in self.seeds:
            self.seeds.append(seed)
        return torch.full((5,), float(self.seeds.index(seed)))

    def ask(self, request: Request[T]) -> Replies[T]:
        if isinstance(request, Train):
            values: Any = request.starts.clone()
        else:
            assert isinstance(request, Losses)
            means = torch.tensor(self.means)[request.models[:, 0].round().long()]
            values = means.expand(len(request.clients), -1).clone()
        return Replies(request.clients, values)


def test_a_model_without_a_loss_wins_no_restart() -> None:
    federation = Scripted(regressions(validation=0), [5.0, 6.0, 9.0, torch.nan, 4.0, 7.0])
    result = IFCA(k=2, restarts=3, local=LOCAL).fit(federation)
    assert result.history[-1].notes["training_losses"] == [5.0, 9.0, 4.0]
    assert result.history[-1].notes["kept"] == "IFCA 3"


def test_the_restart_of_least_training_loss_is_kept() -> None:
    federation = Scripted(regressions(validation=0), [5.0, 6.0, 4.0, 1.0, 2.0, 2.0])
    result = IFCA(k=2, restarts=3, local=LOCAL).fit(federation)
    assert [stage.name for stage in result.history] == ["IFCA 1", "IFCA 2", "IFCA 3", "RESTARTS"]
    assert result.history[-1].notes["training_losses"] == [5.0, 1.0, 2.0]
    assert result.history[-1].notes["kept"] == "IFCA 2"
    assert result.models.unique().tolist() == [3.0]
    assert result.history[-1].labels == tuple(result.labels.tolist())


def test_clients_choose_by_some_samples_and_in_the_end_by_all() -> None:
    asked: list[Losses] = []

    class Listen(Middleware):
        def ask(self, request: Request[T]) -> Replies[T]:
            asked.extend([request] if isinstance(request, Losses) else [])
            return self.federation.ask(request)

    local = LocalTraining(steps=6, local_steps=2, lr=0.05)
    few = IFCA(k=2, start="clients", samples=4, local=local).fit(
        Listen(regressions(validation=0)), seed=3
    )
    choices = [request.subsample for request in asked]
    assert choices[:3] == [Subsample(4, seed=3)] * 3
    assert choices[3] is None
    everything = IFCA(k=2, start="clients", samples=10**6, local=local).fit(
        regressions(validation=0), seed=3
    )
    plain = IFCA(k=2, start="clients", local=local).fit(regressions(validation=0), seed=3)
    assert torch.equal(everything.models, plain.models)
    assert few.labels.shape == plain.labels.shape


def test_restarts_are_counted() -> None:
    federation = regressions()
    options = IFCA(k=3, start="clients", restarts=2, start_steps=6, local=LOCAL)
    assert options.trainings == 2
    assert options.fit(federation).budget.local_steps == 2 * (12 * 30 + 3 * 6)
    assert IFCA(k=3, restarts=4, local=LOCAL).trainings == 4
    given_start = IFCA(k=1, start=torch.zeros(1, 5), local=LOCAL)
    assert given_start.trainings == 1
    spent = given_start.fit(federation).budget
    assert (spent.local_steps, spent.evaluations) == (12 * 30, 12 * (10 + 1))


def test_starts_of_clients_are_their_models() -> None:
    federation = regressions()
    w0 = torch.zeros(12, 5).double()
    rows = train(federation, w0, range(12), LOCAL, Key(0, "ifca 0 start"))
    recorded = DropByNumber(federation)
    IFCA(k=2, start="clients", local=LOCAL).fit(recorded)
    evaluated = next(request for request in recorded.requests if isinstance(request, Losses))
    first, second = evaluated.models
    assert not torch.equal(first, second)
    for row in (first, second):
        assert float((rows - row).norm(dim=1).min()) < 1e-12


def test_a_module_with_given_weights_has_no_random_starts() -> None:
    module = mlp(6, 5, 3)()
    federation = Simulation(examples.classification([20] * 4), module)
    with pytest.raises(InputError, match="start='clients'"):
        IFCA(k=2, local=LOCAL).fit(federation)
    assert len(IFCA(k=2, start="clients", local=LOCAL).fit(federation).models) >= 1
    assert len(IFCA(k=1, local=LOCAL).fit(federation).models) == 1


@pytest.mark.parametrize("shared", [1, -1])
def test_lower_layers_are_shared(shared: int) -> None:
    federation = Simulation(examples.classification([20 + i for i in range(6)]), mlp(6, 5, 3))
    assert list(federation.layers.values()) == [slice(0, 35), slice(35, 53)]
    start = torch.stack([federation.initial_model(seed) for seed in range(4)])
    start[3] = 100.0  # no client chooses it
    one_round = replace(LOCAL, steps=3)
    result = IFCA(k=4, start=start, shared=shared, local=one_round).fit(federation)

    tied = start.clone()
    tied[:, :35] = start[:, :35].mean(0)
    chosen = losses(federation, tied).argmin(1)
    rows = train(federation, tied[chosen], range(6), one_round, Key(0, "ifca 0"))
    n = federation.sizes.double()
    lower = (rows[:, :35] * n.unsqueeze(1)).sum(0) / n.sum()
    upper = tied[:, 35:].double()
    for c in chosen.unique().tolist():
        members = chosen == c
        total = (rows[members, 35:] * n[members].unsqueeze(1)).sum(0)
        upper[c] = total / n[members].sum()
    models = torch.cat([lower.expand(4, -1), upper], dim=1).float()
    last = losses(federation, models).argmin(1)
    torch.testing.assert_close(result.client_models, models[last])


def test_buffers_are_shared_with_the_lower_layers() -> None:
    federation = Simulation(examples.classification([20] * 4, (1, 6, 6)), examples.batch_normed)
    shared = shared_coordinates(Run(federation), 2)
    assert shared is not None
    mask = shared.mask(len(federation.initial_model(0)))
    last = list(federation.layers.values())[-1]
    assert not mask[last].any()
    assert int((~mask).sum()) == last.stop - last.start, "all others, the running means too"
    assert int(mask[last.stop :].sum()) == 6
    assert shared_coordinates(Run(federation), 0) is None
    result = IFCA(k=2, shared=2, local=replace(LOCAL, steps=6)).fit(federation)
    assert torch.equal(result.models[0][mask], result.models[-1][mask])


def test_moves_are_counted() -> None:
    assert num_moved(np.array([-1, 0, 1, 2]), np.array([0, 0, 2, 2])) == 1
    notes = IFCA(k=4, local=replace(DIGITS, steps=25)).fit(digits()).history[-1].notes
    assert len(notes["changed"]) == 5 + 1, "five rounds, and the last choice"
    assert notes["changed"][0] == 0
    assert sum(notes["changed"]) > 0


OPTIONS: dict[str, dict[str, Any]] = {
    "participation": {"participation": 0.5},
    "clients": {"start": "clients"},
    "gradients": {"exchange": "gradients"},
    "restarts": {"restarts": 2, "weighted": False},
    "shared": {"shared": 1},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_same_seed_same_result_as_the_reference(name: str) -> None:
    made = examples.classification([20 + i % 3 for i in range(8)])
    model = examples.doubled(mlp(6, 5, 3))
    options = IFCA(k=3, local=replace(LOCAL, steps=12), **OPTIONS[name])
    expected = options.fit(ReferenceFederation(made, model), seed=2)
    for block_size in (1, 3):
        result = options.fit(Simulation(made, model, block_size=block_size), seed=2)
        assert np.array_equal(result.labels, expected.labels)
        torch.testing.assert_close(result.models, expected.models, rtol=1e-9, atol=1e-9)
    other = options.fit(Simulation(made, model), seed=3)
    assert not torch.allclose(result.client_models, other.client_models)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0), ("exchange", "model"), ("server_lr", 0.0), ("start", "client"),
        ("start", torch.zeros(3, 5)), ("start", torch.zeros(5)), ("start_steps", 0),
        ("start_steps", 251), ("restarts", 0), ("participation", 0.0), ("fine_tune_steps", -1),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_at_once(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        IFCA(**{name: value})


def test_values_that_do_not_fit_the_federation_are_refused() -> None:
    federation = digits()
    for shared in (2, -2):
        with pytest.raises(InputError, match=f"shared must be from -1 to 1 .* not {shared}"):
            IFCA(shared=shared, local=DIGITS).fit(federation)
    with pytest.raises(InputError, match="k=25 is more than the 24 clients"):
        IFCA(k=25, start="clients", local=DIGITS).fit(federation)
    with pytest.raises(InputError, match="start must be rows of length 2410, not 3"):
        IFCA(k=2, start=torch.zeros(2, 3), local=DIGITS).fit(federation)
    with pytest.raises(InputError, match="restarts=2"):
        IFCA(k=2, start=torch.zeros(2, 3), restarts=2)
