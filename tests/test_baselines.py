"""Local, Global, FedProx, robust Global, Oracle, and the fine-tuning of every method's models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from srfca import ClientData, Global, Local, Partition, Result, Simulation, Work, methods
from srfca.errors import InputError
from srfca.experiments.config import METHODS
from srfca.federation.base import Mixture, Sample, Scores, Split
from srfca.methods import FedProx, Oracle, RobustGlobal
from srfca.methods.personalise import personalise
from srfca.methods.run import Run
from srfca.models import linear
from srfca.random import Key
from tests import examples

WORK = Work(steps=4, local_steps=2, batch_size=None, lr=0.05)
SIZES = [6, 9, 12, 21]


def federation(clusters: int = 1, **options: Any) -> Simulation:
    made = examples.regression(SIZES, d=3, clusters=clusters)
    return Simulation(made, examples.doubled(linear(3, bias=False)), validation=0, **options)


def steps(
    clients: Simulation, client: int, w: np.ndarray, count: int, mu: float = 0.0
) -> np.ndarray:
    """So many full-batch steps of 0.05 on the mean squared error and ``mu/2 |w - start|^2``."""
    x, y = (t.numpy() for t in clients._samples["train"].of(client))
    start = w
    for _ in range(count):
        w = w - 0.05 * (2 / len(y) * x.T @ (x @ w - y) + mu * (w - start))
    return w


def rounds(clients: Simulation, aggregate: Any, mu: float = 0.0) -> np.ndarray:
    """Two rounds of two steps of all clients from zero."""
    w = np.zeros(3)
    for _ in range(2):
        w = aggregate(np.stack([steps(clients, c, w, 2, mu) for c in range(4)]))
    return w


def weighted(rows: np.ndarray) -> np.ndarray:
    return np.asarray(sum(n * row for n, row in zip(SIZES, rows, strict=True)) / sum(SIZES))


def middle_two(rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.sort(rows, axis=0)[1:3].mean(0))


BY_HAND = [
    (Global(work=WORK), weighted, 0.0),
    (Global(work=WORK, weighted=False), lambda rows: rows.mean(0), 0.0),
    (FedProx(work=WORK, mu=2.0), weighted, 2.0),
    (FedProx(work=WORK, mu=2.0, weighted=False), lambda rows: rows.mean(0), 2.0),
    (RobustGlobal(work=WORK, trim=0.25), middle_two, 0.0),
    (RobustGlobal(work=WORK, trim=0.2), lambda rows: rows.mean(0), 0.0),
    (RobustGlobal(work=WORK, aggregate="median"), middle_two, 0.0),
]


@pytest.mark.parametrize(("method", "aggregate", "mu"), BY_HAND)
def test_one_model_by_hand(method: Any, aggregate: Any, mu: float) -> None:
    clients = federation()
    result = method.fit(clients)
    assert result.labels.tolist() == [0, 0, 0, 0]
    assert not result.clustered
    np.testing.assert_allclose(result.models[0].numpy(), rounds(clients, aggregate, mu), rtol=1e-9)


def test_local_by_hand() -> None:
    clients = federation()
    result = Local(work=WORK).fit(clients)
    expected = np.stack([steps(clients, c, np.zeros(3), 4) for c in range(4)])
    np.testing.assert_allclose(result.client_models.numpy(), expected, rtol=1e-9)


def test_oracle_by_hand() -> None:
    clients = federation(clusters=2)
    models = []
    for members in ([0, 2], [1, 3]):
        w = np.zeros(3)
        for _ in range(2):
            rows = [steps(clients, c, w, 2) for c in members]
            n = [SIZES[c] for c in members]
            w = (n[0] * rows[0] + n[1] * rows[1]) / sum(n)
        models.append(w)
    result = Oracle(truth=clients.data.truth, work=WORK).fit(clients)
    assert result.labels.tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(result.models.numpy(), np.stack(models), rtol=1e-9)


def test_participation_takes_another_half_in_every_round() -> None:
    clients = federation()
    once = replace(WORK, steps=2)
    found = set()
    for seed in range(12):
        w = Global(work=once, participation=0.5, weighted=False).fit(clients, seed=seed).models[0]
        rows = [steps(clients, c, np.zeros(3), 2) for c in range(4)]
        pairs = [
            (a, b) for a in range(4) for b in range(a) if np.allclose((rows[a] + rows[b]) / 2, w)
        ]
        assert len(pairs) == 1, "the mean of exactly two"
        found |= set(pairs)
    assert len(found) > 2


def test_oracle_refuses_data_without_a_truth_when_it_is_run() -> None:
    method = Oracle(truth=None, work=WORK)
    with pytest.raises(InputError, match="true clusters, which these data do not have"):
        method.fit(federation())
    with pytest.raises(InputError, match="truth is for 3 clients, not for 4"):
        Oracle(truth=Partition([0, 0, 1]), work=WORK).fit(federation())
    with pytest.raises(InputError, match="truth must place every client"):
        Oracle(truth=Partition([0, 0, 1, -1]), work=WORK)


def poisoned(wrong: int) -> Simulation:
    """Twelve clients with the same regression, some of whom have the wrong sign, a hundredfold."""
    made = examples.regression([20] * 12, d=3)
    train = [made.train.of(c) for c in range(12)]
    train = [(x, -100 * y if c < wrong else y) for c, (x, y) in enumerate(train)]
    assert made.test is not None
    return Simulation(ClientData.from_arrays(train, [made.test.of(c) for c in range(12)]), linear(3))


def test_a_few_wrong_clients_spoil_the_mean_but_not_the_robust_ones() -> None:
    work = Work(steps=200, local_steps=5, batch_size=None, lr=0.05)

    def loss(method: Any, wrong: int) -> float:
        clients = poisoned(wrong)
        return float(method.fit(clients).scores(clients).loss.mean())

    trimmed, median = (
        RobustGlobal(work=work, aggregate=aggregate, trim=0.25)
        for aggregate in ("trimmed_mean", "median")
    )
    assert loss(Global(work=work), wrong=0) < 0.1
    assert loss(Global(work=work), wrong=3) > 100
    assert loss(trimmed, wrong=3) < 0.1
    assert loss(median, wrong=3) < 0.1
    assert loss(trimmed, wrong=4) > 1, "one more than is trimmed"


def test_the_proximal_term_keeps_clients_that_differ_together() -> None:
    """FedProx's claim: with many local steps on different data, mu keeps the drift small.

    With curvatures that differ, FedAvg of clients that reach their own minima ends at the mean of
    these; FedProx ends nearer to the minimum of the mean loss.
    """
    x = [torch.ones(20, 1), 3 * torch.ones(20, 1)]
    y = [torch.full((20,), 4.0), torch.full((20,), -3.0)]
    clients = Simulation(
        ClientData.from_arrays(list(zip(x, y, strict=True))), linear(1, bias=False), validation=0
    )
    best = (1 * 4 + 3 * -3) / (1 + 9)
    work = Work(steps=3000, local_steps=100, batch_size=None, lr=0.05)
    ends = {
        mu: float((FedProx(work=work, mu=mu) if mu else Global(work=work)).fit(clients).models[0])
        for mu in (0.0, 1.0, 10.0)
    }
    assert ends[0.0] == pytest.approx((4 - 1) / 2, abs=1e-3)
    assert abs(ends[10.0] - best) < abs(ends[1.0] - best) < abs(ends[0.0] - best)
    start = torch.zeros(2, 1)
    drift = [
        clients.fit(start, range(2), replace(work, prox=mu), Key(0, "drift")).abs().max()
        for mu in (0.0, 1.0, 10.0)
    ]
    assert drift[0] > 1.4 * drift[1] > 1.4 * 1.4 * drift[2]


SMALL = Work(steps=4, local_steps=2, batch_size=5, lr=0.05)


def classes() -> Simulation:
    made = examples.classification([20] * 6)
    made = replace(made, truth=Partition([0, 1] * 3))
    return Simulation(made, examples.doubled(linear(6, 3)))


class Blind:
    """A federation that does not show its test data."""

    def __init__(self, inner: Simulation) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def losses(
        self,
        models: Tensor,
        clients: Sequence[int],
        split: Split = "train",
        sample: Sample | None = None,
    ) -> Tensor:
        assert split != "test"
        return self.inner.losses(models, clients, split, sample)

    def scores(
        self, models: Tensor | Mixture, clients: Sequence[int], split: Split = "test"
    ) -> Scores:
        assert split != "test"
        return self.inner.scores(models, clients, split)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_fine_tuned_without_a_look_at_test_data_and_saved(
    name: str, tmp_path: Path
) -> None:
    clients = classes()
    told: dict[str, Any] = {"truth": clients.data.truth} if name == "oracle" else {}
    told |= {"k": 2} if hasattr(getattr(methods, METHODS[name]), "k") else {}
    told |= {"start": "clients"} if name == "ifca" else {}
    method = getattr(methods, METHODS[name])(work=SMALL, personal_steps=20, **told)
    result = method.fit(Blind(clients), seed=1)
    plain = replace(method, personal_steps=0).fit(Blind(clients), seed=1)
    torch.testing.assert_close(result.client_models, plain.client_models)
    before = clients.scores(result.client_models, range(6), "validation").loss
    after = clients.scores(result.tuned, range(6), "validation").loss
    assert bool((after <= before).all())
    stage = result.history[-1]
    assert stage.name == "PERSONALISE"
    changed = (result.tuned != result.client_models).any(1).tolist()
    assert [taken > 0 for taken in stage.notes["steps"]] == changed
    assert stage.budget.local_steps == 6 * 20
    assert stage.budget.models_up == 0, "what is fine-tuned stays with the clients"
    again = Result.load(result.save(tmp_path))
    assert torch.equal(again.client_models, result.client_models)
    assert again.tuned is not None
    assert torch.equal(again.tuned, result.tuned)


def test_a_client_that_fine_tuning_would_hurt_keeps_its_model() -> None:
    """Client 0 is given its minimum on validation data, client 1 a bad model."""
    made = examples.regression([20, 20], d=3)
    clients = Simulation(made, examples.doubled(linear(3, bias=False)))
    x, y = clients._samples["validation"].of(0)
    best = torch.linalg.lstsq(x, y.unsqueeze(1)).solution[:, 0]
    given = torch.stack([best, torch.full((3,), 9.0).double()])
    run = Run(clients)
    tuned, _ = personalise(run, np.array([0, 0]), given, WORK, steps=20)
    assert torch.equal(tuned[0], given[0])
    assert run.history[-1].notes["steps"][0] == 0
    assert run.history[-1].notes["steps"][1] > 0
    loss = clients.scores(tuned, [0, 1], "validation").loss
    assert float(loss[1]) < float(clients.scores(given, [0, 1], "validation").loss[1])


def test_the_number_of_steps_is_the_best_on_validation_data_and_the_fewest_of_several() -> None:
    class Scripted(Blind):
        """Training adds 1; what the validation data say of a row is written down here."""

        script: ClassVar = {
            0: [5.0, 5.0],
            1: [4.0, 5.0],
            2: [6.0, 5.0],
            3: [4.0, 5.0],
            4: [7.0, 4.9],
        }

        def fit(self, starts: Tensor, clients: Sequence[int], *args: Any) -> Tensor:
            return starts + 1

        def scores(
            self, models: Tensor | Mixture, clients: Sequence[int], split: Split = "test"
        ) -> Scores:
            assert split == "validation"
            assert isinstance(models, Tensor)
            at = [min(int(row[0]), 4) for row in models]
            found = torch.tensor([self.script[step][c] for c, step in enumerate(at)])
            return Scores(found, None, torch.ones(2))

    clients = Scripted(Simulation(examples.regression([20, 20], d=3), linear(3, bias=False)))
    run = Run(clients)
    tuned, steps = personalise(run, np.array([0, 0]), torch.zeros(2, 3), WORK, steps=40)
    assert tuned[:, 0].tolist() == [1.0, 4.0]
    assert run.history[-1].notes["steps"] == steps.tolist() == [4, 16], "checks are 4 steps apart"
    assert run.history[-1].notes["losses"][:5] == pytest.approx([5.0, 4.5, 5.5, 4.5, 5.95])


def test_fine_tuning_that_diverges_costs_a_client_nothing() -> None:
    """Client 0 has inputs so large that its steps explode; client 1 gets better."""
    made = examples.regression([20, 20], d=3)
    large = torch.where(torch.arange(40) < 20, 1e9, 1.0).double().unsqueeze(1)
    train = replace(made.train, x=made.train.x * large)
    clients = Simulation(replace(made, train=train), examples.doubled(linear(3, bias=False)))
    given = torch.full((2, 3), 9.0).double()
    run = Run(clients)
    tuned, steps = personalise(run, np.array([0, 0]), given, WORK, steps=200)
    assert torch.equal(tuned[0], given[0])
    assert steps[0] == 0 < steps[1]
    assert bool(torch.isfinite(tuned).all())


def test_fine_tuning_has_a_rate_of_its_own() -> None:
    clients = Simulation(examples.regression([20, 20], d=3), examples.doubled(linear(3)))
    method = Global(work=WORK, personal_steps=20, personal_lr=0.003)
    own, common = method.fit(clients), replace(method, personal_lr=None).fit(clients)
    slow = replace(WORK, lr=0.003)
    expected, _ = personalise(Run(clients), own.labels, own.client_models, slow, steps=20)
    assert own.tuned is not None
    assert common.tuned is not None
    assert torch.equal(own.tuned, expected)
    assert not torch.equal(own.tuned, common.tuned)


def test_fine_tuning_needs_validation_data() -> None:
    class Untouched(Blind):
        def fit(self, *args: Any) -> Tensor:
            raise AssertionError("it is refused before anybody trains")

    with pytest.raises(InputError, match="personal_steps needs held-out data"):
        Global(work=WORK, personal_steps=5).fit(Untouched(federation()))


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        (Global, "participation", 0.0), (Global, "personal_steps", -1), (Local, "personal_lr", 0.0),
        (Local, "personal_steps", -1),
        (FedProx, "mu", 0.0), (FedProx, "participation", 2.0), (RobustGlobal, "trim", 0.5),
        (RobustGlobal, "aggregate", "mean"), (RobustGlobal, "participation", -1.0),
    ],
)  # fmt: skip
def test_bad_parameters_are_named(method: Any, name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        method(**{name: value})


@pytest.mark.parametrize("method", [Global, Local, FedProx, RobustGlobal])
def test_the_seed_decides_and_blocks_do_not(method: Any) -> None:
    chosen = method(work=SMALL, personal_steps=10)
    made, model = examples.classification([20] * 5), examples.doubled(linear(6, 3))
    found = chosen.fit(Simulation(made, model), seed=5)
    again = chosen.fit(Simulation(made, model, block_size=1), seed=5)
    torch.testing.assert_close(found.client_models, again.client_models)
    torch.testing.assert_close(found.tuned, again.tuned)
    other = chosen.fit(Simulation(made, model), seed=6)
    assert not torch.allclose(found.client_models, other.client_models)
