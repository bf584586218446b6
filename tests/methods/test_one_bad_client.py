"""What one bad client can do to the others: nothing that ends a run, and little otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from srfca import SRFCA, ClientData, FedAvg, Partition, Simulation
from srfca.errors import SrfcaWarning
from srfca.federation import Federation, Losses, Middleware, Replies, Request, Scores, Split, Train
from srfca.federation.replies import ClientScores
from srfca.methods import IFCA, Method, RobustFedAvg
from srfca.methods._common.held_out import interchangeable
from srfca.methods._common.result import Result
from srfca.methods.adaptation import adapt
from srfca.methods.sr_fca.decision import Tolerance, compare
from srfca.models import mlp
from tests.methods.helpers import DIGITS, digits

pytestmark = pytest.mark.filterwarnings("ignore::srfca.errors.SrfcaWarning")

LIAR = 5
"""The bad client."""
SPLITS: tuple[Split, ...] = ("train", "validation")


@dataclass(frozen=True)
class Behavior:
    """What a bad client does; None is what an honest one does.

    Args:
        loss: The loss that it tells of every model on these splits.
        accuracy: The accuracy that it tells.
        splits: Where it lies.
        change: What becomes of the rows that it trains.
        size: The number of samples that it claims.
    """

    loss: float | None = None
    accuracy: float | None = None
    splits: tuple[Split, ...] = SPLITS
    change: Callable[[Tensor], Tensor] | None = None
    size: int | None = None


class OneBadClient(Middleware):
    """A federation with one bad client."""

    def __init__(self, federation: Federation, behavior: Behavior) -> None:
        super().__init__(federation)
        self.behavior = behavior

    @property
    def sizes(self) -> Tensor:
        sizes = self.federation.sizes.clone()
        if self.behavior.size is not None:
            sizes[LIAR] = self.behavior.size
        return sizes

    def ask(self, request: Request[Any]) -> Replies[Any]:
        replies: Replies[Any] = self.federation.ask(request)
        at, behavior, values = (
            torch.as_tensor(replies.clients == LIAR),
            self.behavior,
            replies.values,
        )
        if isinstance(request, Train) and behavior.change is not None:
            rows = values.clone()
            rows[at] = behavior.change(rows[at])
            return replace(replies, values=rows)
        if getattr(request, "split", None) not in behavior.splits:
            return replies
        if isinstance(request, Losses) and behavior.loss is not None:
            return replace(replies, values=values.masked_fill(at.unsqueeze(1), behavior.loss))
        if isinstance(request, Scores):
            for name in ("loss", "accuracy"):
                if (lie := getattr(behavior, name)) is not None:
                    told = getattr(values, name).masked_fill(at, lie)
                    values = replace(values, **{name: told})
            return replace(replies, values=values)
        return replies


BEHAVIORS = {
    "negative losses": Behavior(loss=-1e-9),
    "held-out loss 0": Behavior(loss=0.0, splits=("validation",)),
    "held-out loss 3": Behavior(loss=3.0, splits=("validation",)),
    "held-out loss 1e30": Behavior(loss=1e30, splits=("validation",)),
    "held-out loss inf": Behavior(loss=torch.inf, splits=("validation",)),
    "held-out accuracy 0": Behavior(accuracy=0.0, splits=("validation",)),
    "held-out accuracy 1": Behavior(loss=0.0, accuracy=1.0, splits=("validation",)),
    "training loss 0": Behavior(loss=0.0, splits=("train",)),
    "training loss 20": Behavior(loss=20.0, splits=("train",)),
    "training loss 1e30": Behavior(loss=1e30, splits=("train",)),
    "rows x 1e9": Behavior(change=lambda rows: rows * 1e9),
    "rows x 100": Behavior(change=lambda rows: rows * 100),
    "rows x -10": Behavior(change=lambda rows: rows * -10),
    "rows of NaN": Behavior(change=lambda rows: rows * torch.nan),
    "2^62 samples": Behavior(size=2**62),
}
"""Behaviors by name; add others here."""


def honest_accuracy(result: Result, federation: Simulation) -> float:
    """Return the mean test accuracy of the honest clients."""
    rows = result.individual_models
    rows = result.models[torch.tensor(result.labels)] if rows is None else rows
    scores = federation.ask(Scores(np.arange(len(rows)), rows, "test")).values
    assert scores.accuracy is not None
    return float(np.delete(scores.accuracy.numpy(), LIAR).mean())


def honest(partition: Partition) -> Partition:
    """Return a partition of the honest clients."""
    return Partition(np.delete(partition.labels, LIAR))


@pytest.fixture(scope="module")
def federation() -> Simulation:
    return digits(num_clients=40)


@pytest.fixture(scope="module")
def clean(federation: Simulation) -> float:
    return honest_accuracy(SRFCA(local=DIGITS).fit(federation), federation)


@pytest.mark.parametrize("name", BEHAVIORS)
def test_one_client_costs_the_others_of_sr_fca_little(
    name: str, federation: Simulation, clean: float
) -> None:
    result = SRFCA(local=DIGITS).fit(OneBadClient(federation, BEHAVIORS[name]))
    assert federation.data.truth is not None
    assert honest(result.partition) == honest(federation.data.truth)
    assert honest_accuracy(result, federation) > clean - 0.02  # a point, and noise of 720 samples


@pytest.mark.parametrize("distance", ["l2", "balanced_cross_loss", "one_sided_loss"])
@pytest.mark.parametrize(
    "name", ["held-out loss 1e30", "training loss 20", "rows x 100", "rows x -10"]
)
def test_one_client_costs_the_others_little_with_other_distances(
    name: str, distance: str, federation: Simulation, clean: float
) -> None:
    method = SRFCA(local=DIGITS, distance=distance)
    result = method.fit(OneBadClient(federation, BEHAVIORS[name]))
    assert federation.data.truth is not None
    assert honest(result.partition) == honest(federation.data.truth)
    assert honest_accuracy(result, federation) > clean - 0.02


@pytest.mark.parametrize("split", SPLITS)
def test_a_negative_loss_does_not_end_a_run_without_losses_in_its_distance(
    split: Split, federation: Simulation
) -> None:
    bad = OneBadClient(federation, Behavior(loss=-1e-9, splits=(split,)))
    result = SRFCA(local=DIGITS, distance="l2").fit(bad)
    assert honest_accuracy(result, federation) > 0.8


@pytest.mark.parametrize("name", ["2^62 samples", "rows x -10", "rows x 1e9", "held-out loss 1e30"])
def test_one_client_costs_the_others_of_an_adaptation_little(
    name: str, federation: Simulation
) -> None:
    method = SRFCA(local=DIGITS)
    result = method.fit(federation)
    aggregation = method.rows_rule
    before = adapt(result, federation, DIGITS, rounds=4, aggregation=aggregation)
    bad = OneBadClient(federation, BEHAVIORS[name])
    after = adapt(result, bad, DIGITS, rounds=4, aggregation=aggregation)
    assert honest(after.partition) == honest(before.partition)
    assert honest_accuracy(after, federation) > honest_accuracy(before, federation) - 0.02


@pytest.mark.parametrize(
    "method",
    [FedAvg(local=DIGITS), IFCA(k=4, local=DIGITS), SRFCA(local=DIGITS, trim=0, final_steps=20)],
    ids=lambda method: method.key,
)
def test_a_claimed_size_is_capped(method: Method, federation: Simulation) -> None:
    honest_result = method.fit(federation)
    result = method.fit(OneBadClient(federation, BEHAVIORS["2^62 samples"]))
    before, after = (honest_accuracy(r, federation) for r in (honest_result, result))
    assert after > before - 0.04


@pytest.mark.parametrize("name", ["rows x 1e9", "held-out loss 1e30", "held-out loss inf"])
def test_one_client_does_not_let_clusters_take_in_anyone(name: str, federation: Simulation) -> None:
    result = SRFCA(local=DIGITS, trim=0.1).fit(OneBadClient(federation, BEHAVIORS[name]))
    newcomers = digits(num_clients=4, seed=1)
    assert (result.assign(newcomers).labels >= 0).all()
    samples = [newcomers.data.train.of(client) for client in range(4)]
    relabeled = [(x.numpy(), ((y + 3) % 10).numpy()) for x, y in samples]
    strangers = Simulation(ClientData.from_arrays(relabeled), mlp(64, 32, 10))
    assert (result.assign(strangers).labels == -1).all()


@pytest.mark.parametrize("aggregation", ["trimmed_mean", "median", "geometric_median"])
def test_a_cluster_of_six_tolerates_one_corrupt_client(aggregation: Any) -> None:
    small = digits(num_clients=12, rotations=2)
    method = SRFCA(local=DIGITS, aggregation=aggregation, trim=0.1)
    result = method.fit(OneBadClient(small, BEHAVIORS["rows x -10"]))
    assert honest_accuracy(result, small) > honest_accuracy(method.fit(small), small) - 0.04


@pytest.mark.parametrize(
    "aggregation", ["trimmed_mean", "median", "geometric_median", "clipped_mean"]
)
def test_robust_fedavg_tolerates_one_corrupt_client(aggregation: Any) -> None:
    small = digits(num_clients=12, rotations=1)
    method = RobustFedAvg(local=DIGITS, aggregation=aggregation)
    result = method.fit(OneBadClient(small, BEHAVIORS["rows x 1e9"]))
    assert honest_accuracy(result, small) > 0.8


def test_a_refused_reply_is_named_and_not_in_the_journal(
    federation: Simulation, tmp_path: Path
) -> None:
    method = SRFCA(local=replace(DIGITS, steps=20), refine_steps=1)
    bad = OneBadClient(federation, BEHAVIORS["negative losses"])
    with pytest.warns(SrfcaWarning, match="refused a reply of client '5': a negative loss"):
        first = method.fit(bad, journal=tmp_path)
    missing = [reply for stage in first.history for reply in stage.notes.get("missing", [])]
    assert {(reply["client"], reply["reason"]) for reply in missing} == {
        ("5", "refused: a negative loss")
    }
    resumed = method.fit(federation, journal=tmp_path)
    assert torch.equal(resumed.models, first.models)


LOSSES = st.one_of(st.floats(0, 10), st.floats(0, 1e300), st.sampled_from([0.0, 1e30, np.inf]))


@given(own=LOSSES, other=LOSSES, alike=st.booleans(), seed=st.integers(0, 20))
def test_one_client_does_not_decide_what_merges(
    own: float, other: float, alike: bool, seed: int
) -> None:
    """One of 20 clients tells any two losses; clusters merge exactly if the others say so."""
    draws = np.random.default_rng(seed).uniform(0.8, 1.2, (2, 20))
    partition = Partition(np.arange(20) // 10)
    losses = draws if alike else np.where(partition.labels == [[0], [1]], draws, 6 * draws)
    losses[:, LIAR] = own, other
    assert interchangeable(losses, partition)[0, 1] == alike


@given(first=LOSSES, second=LOSSES, seed=st.integers(0, 20))
def test_one_client_does_not_decide_what_is_better(first: float, second: float, seed: int) -> None:
    draws = np.random.default_rng(seed).uniform(0.8, 1.2, (2, 40))
    for factor, minimum, maximum in ((1.0, -3.0, 3.0), (2.0, 3.0, np.inf)):
        losses = draws * [[1.0], [factor]]
        losses[:, LIAR] = first, second
        a, b = (ClientScores(torch.tensor(row), None, torch.ones(40)) for row in losses)
        assert minimum <= compare(a, b).t <= maximum


@pytest.mark.parametrize("lie", [(1e6, 0.0), (20.0, 0.0), (np.inf, 0.0), (0.0, 1e6)])
@pytest.mark.parametrize("seed", range(5))
def test_two_of_ten_clients_of_a_cluster_do_not_decide_what_merges(
    lie: tuple[float, float], seed: int
) -> None:
    draws = np.random.default_rng(seed).uniform(0.8, 1.2, (2, 20))
    partition = Partition(np.arange(20) // 10)
    for alike in (True, False):
        losses = draws if alike else np.where(partition.labels == [[0], [1]], draws, 6 * draws)
        losses = losses.copy()
        losses[:, [3, 7]] = np.array(lie)[:, None]
        losses[:, [13, 17]] = np.array(lie[::-1])[:, None]
        assert interchangeable(losses, partition, trim=0.25)[0, 1] == alike


@pytest.mark.parametrize("num_liars", [6, 8])
@pytest.mark.parametrize("seed", range(5))
def test_a_fifth_of_the_clients_does_not_decide_what_is_better(num_liars: int, seed: int) -> None:
    """Honest clients have an accuracy of 0.9 in their cluster and of 0.75 alone, on 10 samples."""
    rng = np.random.default_rng(seed)
    accuracy = rng.binomial(10, [[0.75], [0.9]], (2, 40)) / 10
    liars = np.arange(num_liars) * 5
    accuracy[:, liars] = [[1.0], [0.0]]
    alone, clusters = (
        ClientScores(torch.ones(40), torch.tensor(row), torch.full((40,), 10)) for row in accuracy
    )
    assert compare(alone, clusters).t > -1, "too many liars for the default"
    assert compare(alone, clusters, Tolerance(np.arange(40) % 4, 10)).t < 0


def test_a_cluster_may_gain_when_the_others_do_not() -> None:
    gains = np.where(np.arange(40) < 8, 0.4, 0.0) + 0.01 * np.random.default_rng(0).normal(size=40)
    first, second = (
        ClientScores(torch.ones(40), torch.tensor(0.5 + part), torch.ones(40))
        for part in (gains, 0 * gains)
    )
    assert compare(first, second, Tolerance(np.arange(40) // 8, 10)).t > 2
    assert compare(first, second, Tolerance(np.zeros(40, dtype=np.int64), 10)).t < 2
