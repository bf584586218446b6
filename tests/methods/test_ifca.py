from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from srfca import ClientData, Global, Partition, Simulation, Work, data
from srfca.errors import InputError
from srfca.experiments import config, runner
from srfca.federation.base import Sample
from srfca.methods import IFCA, Oracle
from srfca.methods.ifca import moved, shared_coordinates
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.loop_federation import LoopFederation

WORK = Work(steps=30, local_steps=3, batch_size=10, lr=0.05)
DIGITS = Work(steps=100, local_steps=5, batch_size=10, lr=0.5)
Array = NDArray[np.float64]
Samples = list[tuple[Array, Array]]


def regressions(clients: int = 12, clusters: int = 3, **kwargs: Any) -> Simulation:
    made = examples.regression([20 + i % 3 for i in range(clients)], clusters=clusters)
    return Simulation(made, examples.doubled(linear(4)), **kwargs)


def samples(made: ClientData) -> Samples:
    """Each client's inputs with a 1 for the intercept, and its targets."""
    pairs = (made.train.of(i) for i in range(len(made.client_ids)))
    return [(np.c_[x.double().numpy(), np.ones(len(x))], y.double().numpy()) for x, y in pairs]


def training_losses(clients: Samples, models: Array) -> Array:
    return np.array([[((x @ w - y) ** 2).mean() for x, y in clients] for w in models])


def ifca_by_hand(
    clients: Samples, models: Array, rounds: int, local_steps: int, lr: float, between: int = 1
) -> tuple[Array, list[int]]:
    """IFCA on linear regressions with full batches, as a plain loop."""
    for t in range(rounds):
        if t % between == 0:
            labels = training_losses(clients, models).argmin(0)
        sums, weights = np.zeros_like(models), np.zeros(len(models))
        for (x, y), label in zip(clients, labels, strict=True):
            w = models[label].copy()
            for _ in range(local_steps):
                w -= lr * 2 * x.T @ (x @ w - y) / len(y)
            sums[label] += len(y) * w
            weights[label] += len(y)
        models = np.array(
            [
                s / n if n else m for s, n, m in zip(sums, weights, models, strict=True)
            ]  # a cluster without clients keeps its model
        )
    return models, training_losses(clients, models).argmin(0).tolist()


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=20)
def test_rounds_are_those_of_a_plain_loop(seed: int, k: int, rounds: int, local: int) -> None:
    federation = regressions(validation=0)
    start = 3 * torch.randn(k, 5, generator=torch.Generator().manual_seed(seed)).double()
    work = Work(steps=rounds * local, local_steps=local, batch_size=None, lr=0.05)
    result = IFCA(k=k, start=start, work=work).fit(federation)
    models, labels = ifca_by_hand(samples(federation.data), start.numpy(), rounds, local, 0.05)
    assert result.partition == Partition(labels)
    used = list(dict.fromkeys(labels))
    np.testing.assert_allclose(result.models.numpy(), models[used], rtol=1e-9, atol=1e-9)
    assert result.history[-1].notes["empty"] == [c for c in range(k) if c not in labels]


@pytest.mark.parametrize(("server_lr", "rate"), [(None, 0.05), (0.2, 0.2)])
def test_gradients_are_followed_by_the_server(server_lr: float | None, rate: float) -> None:
    federation = regressions(validation=0)
    start = torch.tensor([[1.0] * 5, [-1.0] * 5]).double()
    options = IFCA(
        k=2, average="gradients", start=start, server_lr=server_lr, weighted=False,
        work=replace(WORK, steps=1),
    )  # fmt: skip
    result = options.fit(federation)
    clients = samples(federation.data)
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


def test_the_servers_rate_follows_the_schedule() -> None:
    federation = regressions(validation=0)
    start = torch.tensor([[1.0] * 5]).double()
    work = replace(WORK, steps=4, local_steps=1, batch_size=None, schedule="linear")
    models = IFCA(k=1, start=start, work=work).fit(federation)
    gradients = IFCA(k=1, start=start, average="gradients", work=work).fit(federation)
    torch.testing.assert_close(gradients.models, models.models, rtol=1e-9, atol=1e-9)


def optima(federation: Simulation) -> Tensor:
    """The least squares solution of each true cluster: ``[k, 5]``."""
    truth, clients = federation.data.truth, samples(federation.data)
    assert truth is not None
    return torch.tensor(
        np.array(
            [
                np.linalg.lstsq(
                    np.concatenate([clients[i][0] for i in members]),
                    np.concatenate([clients[i][1] for i in members]),
                    rcond=None,
                )[0]
                for members in truth
            ]
        )
    )


@pytest.mark.parametrize("average", ["models", "gradients"])
@pytest.mark.parametrize("seed", range(3))
def test_from_a_good_start_it_converges_to_the_optima(average: str, seed: int) -> None:
    """The paper's theorem: starts within half of the least distance between two optima."""
    federation = regressions(validation=0)
    best = optima(federation)
    gaps = torch.cdist(best, best)[*np.triu_indices(3, 1)]
    away = torch.randn(3, 5, generator=torch.Generator().manual_seed(seed)).double()
    start = best + 0.4 * gaps.min() * away / away.norm(dim=1, keepdim=True)
    work = Work(steps=120, local_steps=1, batch_size=None, lr=0.1)
    result = IFCA(k=3, average=average, start=start, work=work).fit(federation)
    assert result.partition == federation.data.truth
    assert sum(result.history[-1].notes["changed"]) == 0, "everybody was right at once"
    torch.testing.assert_close(result.models, best, rtol=0, atol=1e-4)


def test_from_a_bad_start_all_but_one_model_starve() -> None:
    """Targets <x, w> and -<x, w>; 3w is farther from both than w, and than all between them."""
    g = torch.Generator().manual_seed(0)
    w = torch.tensor([1.0, 2.0, -1.0, 0.5]).double()
    x = torch.randn(10, 30, 4, generator=g).double()
    sign = torch.tensor([1.0, -1.0] * 5).double()
    y = (x @ w) * sign.unsqueeze(1)
    made = ClientData.from_arrays(list(zip(x, y, strict=True)), truth=[0, 1] * 5)
    federation = Simulation(made, examples.doubled(linear(4, bias=False)), validation=0)
    work = Work(steps=100, local_steps=2, batch_size=None, lr=0.1)
    bad = IFCA(k=2, start=torch.stack([w, 3 * w]), work=work).fit(federation)
    assert bad.partition == Partition([0] * 10)
    assert bad.history[-1].notes["empty"] == [1]
    assert float(bad.models[0].norm()) < 0.3 * float(w.norm()), "between w and -w: nobody's model"
    good = IFCA(k=2, start=torch.stack([0.1 * w, -0.1 * w]), work=work).fit(federation)
    assert good.partition == made.truth
    torch.testing.assert_close(good.models, torch.stack([w, -w]), rtol=1e-3, atol=1e-3)


def check_starts(federation: Simulation, work: Work, seed: int) -> None:
    """Good: the true clusters have trained a little. Bad: one model has trained on everybody."""
    truth = federation.data.truth
    first = replace(work, steps=work.steps // 4)
    good = Oracle(truth=truth, work=first).fit(federation, seed).models
    ahead = Global(work=first).fit(federation, seed).models
    bad = torch.cat([torch.stack([federation.initial(100 + j) for j in range(3)]), ahead])
    found, failed = (IFCA(k=4, start=s, work=work).fit(federation, seed) for s in (good, bad))
    assert found.partition == truth
    assert failed.partition.num_clusters == 1, "the others are nobody's best, and never train"
    assert failed.history[-1].notes["empty"] == [0, 1, 2]
    accuracy, lost = (r.scores(federation).accuracy for r in (found, failed))
    assert accuracy is not None
    assert lost is not None
    assert float(accuracy.mean()) > float(lost.mean()) + 0.03
    equal = federation.initial(seed).repeat(4, 1)
    copies = IFCA(k=4, start=equal, work=replace(work, steps=10)).fit(federation, seed)
    assert copies.history[-1].notes["empty"] == [1, 2, 3], "everybody takes the first of equals"


def digits(seed: int = 0, **kwargs: Any) -> Simulation:
    made = data.rotated_digits(num_clients=24, seed=seed)
    return Simulation(made, mlp(64, 32, 10), seed=seed, **kwargs)


def test_rotated_digits_from_good_and_bad_starts() -> None:
    check_starts(digits(), DIGITS, seed=0)


def test_rotated_mnist_from_good_and_bad_starts(real_data: Callable[[str], Path]) -> None:
    experiment = config.load("rotated-mnist").set(["num_clients=24", "sizes=120", "hidden=50"])
    federation = runner.federation(experiment, seed=0, folder=real_data("mnist"))
    work = Work(**experiment.set(["steps=60"]).arguments("work"))
    check_starts(federation, work, seed=0)


def test_random_starts_find_the_rotations() -> None:
    federation = digits()
    result = IFCA(k=4, restarts=4, work=DIGITS).fit(federation)
    assert result.partition == federation.data.truth


class Scripted:
    """A federation in which nothing is learnt: losses of each start are given."""

    def __init__(self, inner: Simulation, means: Sequence[float]) -> None:
        self.inner, self.means = inner, list(means)
        self.seeds: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def initial(self, seed: int) -> Tensor:
        """The n-th model is full of n."""
        if seed not in self.seeds:
            self.seeds.append(seed)
        return torch.full((5,), float(self.seeds.index(seed)))

    def fit(self, starts: Tensor, *args: Any) -> Tensor:
        return starts.clone()

    def losses(
        self,
        models: Tensor,
        clients: Sequence[int],
        split: str = "train",
        sample: Sample | None = None,
    ) -> Tensor:
        values = torch.tensor(self.means)[models[:, 0].round().long()]
        return values.unsqueeze(1).expand(-1, len(clients)).clone()


def test_a_model_without_a_loss_wins_no_restart() -> None:
    federation = Scripted(regressions(validation=0), [5.0, 6.0, 9.0, torch.nan, 4.0, 7.0])
    result = IFCA(k=2, restarts=3, work=WORK).fit(federation)
    assert result.history[-1].notes["training_losses"] == [5.0, 9.0, 4.0]
    assert result.history[-1].notes["kept"] == "IFCA 3"


def test_the_restart_of_least_training_loss_is_kept() -> None:
    federation = Scripted(regressions(validation=0), [5.0, 6.0, 4.0, 1.0, 2.0, 2.0])
    result = IFCA(k=2, restarts=3, work=WORK).fit(federation)
    assert [stage.name for stage in result.history] == ["IFCA 1", "IFCA 2", "IFCA 3", "RESTARTS"]
    assert result.history[-1].notes["training_losses"] == [5.0, 1.0, 2.0]
    assert result.history[-1].notes["kept"] == "IFCA 2"
    assert result.models.unique().tolist() == [3.0]
    assert result.history[-1].labels == tuple(result.labels.tolist())


def test_restarts_cost_what_they_cost() -> None:
    federation = regressions()
    options = IFCA(k=3, start="clients", restarts=2, start_steps=6, work=WORK)
    assert options.trainings == 2
    assert options.fit(federation).budget.local_steps == 2 * (12 * 30 + 3 * 6)
    assert IFCA(k=3, restarts=4, work=WORK).trainings == 4
    given = IFCA(k=1, start=torch.zeros(1, 5), work=WORK)
    assert given.trainings == 1
    spent = given.fit(federation).budget
    assert (spent.local_steps, spent.evaluations) == (12 * 30, 12 * (10 + 1))


def test_starts_of_clients_are_their_models() -> None:
    federation = regressions()
    w0 = torch.zeros(12, 5).double()
    rows = federation.fit(w0, range(12), WORK, Key(0, "ifca 0 start"))
    watched = Watched(federation)
    IFCA(k=2, start="clients", work=WORK).fit(watched)
    first, second = watched.first_losses
    assert not torch.equal(first, second)
    for row in (first, second):
        assert float((rows - row).norm(dim=1).min()) < 1e-12


class Watched:
    """Remembers the models that were first evaluated."""

    def __init__(self, inner: Simulation) -> None:
        self.inner = inner
        self.first_losses: Tensor = torch.empty(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def losses(
        self,
        models: Tensor,
        clients: Sequence[int],
        split: Any = "train",
        sample: Sample | None = None,
    ) -> Tensor:
        if not len(self.first_losses):
            self.first_losses = models.clone()
        return self.inner.losses(models, clients, split, sample)


def test_a_given_start_is_told_of_the_other_way() -> None:
    module = mlp(6, 5, 3)()
    federation = Simulation(examples.classification([20] * 4), module)
    with pytest.raises(InputError, match="start='clients'"):
        IFCA(k=2, work=WORK).fit(federation)
    assert len(IFCA(k=2, start="clients", work=WORK).fit(federation).models) >= 1
    assert len(IFCA(k=1, work=WORK).fit(federation).models) == 1


@pytest.mark.parametrize("shared", [1, -1])
def test_lower_layers_are_shared(shared: int) -> None:
    federation = Simulation(examples.classification([20 + i for i in range(6)]), mlp(6, 5, 3))
    assert list(federation.layers.values()) == [slice(0, 35), slice(35, 53)]
    start = torch.stack([federation.initial(seed) for seed in range(4)])
    start[3] = 100.0  # nobody's model
    one = replace(WORK, steps=3)
    result = IFCA(k=4, start=start, shared=shared, work=one).fit(federation)

    tied = start.clone()
    tied[:, :35] = start[:, :35].mean(0)
    chosen = federation.losses(tied, range(6)).argmin(0)
    rows = federation.fit(tied[chosen], range(6), one, Key(0, "ifca 0"))
    n = federation.sizes.double()
    lower = (rows[:, :35] * n.unsqueeze(1)).sum(0) / n.sum()
    upper = tied[:, 35:].double()
    for c in chosen.unique().tolist():
        mine = chosen == c
        upper[c] = (rows[mine, 35:] * n[mine].unsqueeze(1)).sum(0) / n[mine].sum()
    models = torch.cat([lower.expand(4, -1), upper], dim=1).float()
    last = federation.losses(models, range(6)).argmin(0)
    torch.testing.assert_close(result.client_models, models[last])


def test_buffers_are_shared_with_the_lower_layers() -> None:
    federation = Simulation(examples.classification([20] * 4, (1, 6, 6)), examples.batch_normed)
    common = shared_coordinates(federation, 2)
    assert common is not None
    last = list(federation.layers.values())[-1]
    assert not common[last].any()
    assert int((~common).sum()) == last.stop - last.start, "all else, the running means too"
    assert int(common[last.stop :].sum()) == 6
    assert shared_coordinates(federation, 0) is None
    result = IFCA(k=2, shared=2, work=replace(WORK, steps=6)).fit(federation)
    assert torch.equal(result.models[0][common], result.models[-1][common])


def test_moves_are_counted() -> None:
    assert moved(np.array([-1, 0, 1, 2]), np.array([0, 0, 2, 2])) == 1
    federation = digits()
    notes = IFCA(k=4, work=replace(DIGITS, steps=25)).fit(federation).history[-1].notes
    assert len(notes["changed"]) == 5 + 1, "five rounds, and the last choice"
    assert notes["changed"][0] == 0
    assert sum(notes["changed"]) > 0


OPTIONS: dict[str, dict[str, Any]] = {
    "participation": {"participation": 0.5},
    "clients": {"start": "clients"},
    "gradients": {"average": "gradients"},
    "restarts": {"restarts": 2, "weighted": False},
    "shared": {"shared": 1},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_same_seed_gives_the_same_answer_on_any_backend(name: str) -> None:
    made = examples.classification([20 + i % 3 for i in range(8)])
    model = examples.doubled(mlp(6, 5, 3))
    options = IFCA(k=3, work=replace(WORK, steps=12), **OPTIONS[name])
    expected = options.fit(LoopFederation(made, model), seed=2)
    for block_size in (1, 3):
        found = options.fit(Simulation(made, model, block_size=block_size), seed=2)
        assert np.array_equal(found.labels, expected.labels)
        torch.testing.assert_close(found.models, expected.models, rtol=1e-9, atol=1e-9)
    other = options.fit(Simulation(made, model), seed=3)
    assert not torch.allclose(found.client_models, other.client_models)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0), ("average", "model"), ("server_lr", 0.0), ("start", "client"),
        ("start", torch.zeros(3, 5)), ("start", torch.zeros(5)), ("start_steps", 0),
        ("start_steps", 251), ("restarts", 0), ("participation", 0.0), ("personal_steps", -1),
    ],
)  # fmt: skip
def test_parameters_are_checked_when_they_are_given(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        IFCA(**{name: value})  # type: ignore[arg-type]


def test_what_only_the_federation_can_tell() -> None:
    federation = digits()
    for shared in (2, -2):
        with pytest.raises(InputError, match=f"shared must be from -1 to 1 .* not {shared}"):
            IFCA(shared=shared, work=DIGITS).fit(federation)
    with pytest.raises(InputError, match="k=25 is more than the 24 clients"):
        IFCA(k=25, start="clients", work=DIGITS).fit(federation)
    with pytest.raises(InputError, match="start must be rows of length 2410, not 3"):
        IFCA(k=2, start=torch.zeros(2, 3), work=DIGITS).fit(federation)
    with pytest.raises(InputError, match="restarts=2"):
        IFCA(k=2, start=torch.zeros(2, 3), restarts=2)
