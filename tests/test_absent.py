"""What the shared pieces make of answers that are not known, against plain references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as student
from torch import Tensor

from srfca import SRFCA, ClientData, InputError, Partition, Simulation, Work
from srfca.clustering.scalable import cluster_from_few_distances
from srfca.clustering.matrix import complete_subset
from srfca.data import rotated_digits
from srfca.distances import Side, cross_loss
from srfca.federation.base import Absence, Sample, Scores, Split, Wire
from srfca.methods import (
    CFL,
    IFCA,
    MOCHA,
    PACFL,
    Ditto,
    FedEM,
    FedGroup,
    FedSoft,
    FeSEM,
    Global,
    Hierarchical,
    HypCluster,
    Method,
    OneShotIFCA,
    OneShotKMeans,
)
from srfca.methods.held_out import interchangeable
from srfca.methods.result import models_of_clients, reach
from srfca.methods.rounds import (
    aggregate_clusters,
    check_finite,
    cluster_round,
    least,
    local_training,
    plain_mean,
    trained_models,
)
from srfca.methods.run import Run
from srfca.methods.starts import distant_models, drawn_models, random_models
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples

M = 8
DATA = examples.regression([20] * M, clusters=2)
KEY = Key(0, "test")
WORK = Work(steps=20, local_steps=5, batch_size=10, lr=0.05)


class Dropping(Simulation):
    """A simulation in which some clients do not answer some questions, by their number."""

    def __init__(
        self,
        drops: dict[int, list[int]],
        data: ClientData = DATA,
        validation: float = 0.1,
        model: Any = None,
    ) -> None:
        model = model or linear(data.train.x.shape[1])
        super().__init__(data, model, device="cpu", validation=validation)
        self.drops = drops
        self.asked = 0
        self.wire = Wire()

    def _lost(self, task: str, clients: Sequence[int]) -> list[int]:
        gone = self.drops.get(self.asked, [])
        self.asked += 1
        lost = [place for place, client in enumerate(clients) if client in gone]
        new = tuple(Absence(self.clients[clients[place]], task, "dropped") for place in lost)
        self.wire = Wire(absences=self.wire.absences + new)
        return lost

    def fit(self, starts: Tensor, clients: Sequence[int], *args: Any, **more: Any) -> Tensor:
        whole = starts.nan_to_num()
        rows = super().fit(whole, clients, *args, **more)
        rows[self._lost("fit", clients)] = torch.nan
        rows[starts.isnan().any(1)] = torch.nan
        return rows

    def losses(
        self,
        models: Tensor,
        clients: Sequence[int],
        split: Split = "train",
        sample: Sample | None = None,
    ) -> Tensor:
        losses = super().losses(models, clients, split, sample)
        losses[:, self._lost("losses", clients)] = torch.nan
        return losses

    def shares(self, models: Any, clients: Sequence[int]) -> Tensor:
        shares = super().shares(models, clients)
        shares[self._lost("shares", clients)] = torch.nan
        return shares

    def subspaces(self, clients: Sequence[int], rank: int) -> Tensor:
        bases = super().subspaces(clients, rank)
        bases[self._lost("subspaces", clients)] = torch.nan
        return bases

    def scores(self, models: Any, clients: Sequence[int], split: Split = "test") -> Scores:
        scores = super().scores(models, clients, split)
        scores.loss[self._lost("scores", clients)] = torch.nan
        return scores


@settings(max_examples=25)
@given(st.dictionaries(st.integers(0, 12), st.lists(st.integers(0, M - 1), max_size=2), max_size=5))
def test_sr_fca_ends_whoever_does_not_answer(drops: dict[int, list[int]]) -> None:
    federation = Dropping(drops)
    result = SRFCA(work=WORK, threshold="45%", merge_threshold="auto").fit(federation, seed=0)
    assert result.models.isfinite().all()
    silent = {int(absence.client) for absence in federation.wire.absences}
    present = [client for client in range(M) if client not in silent]
    assert DATA.truth is not None
    assert Partition(result.labels[present]) == Partition(DATA.truth.labels[present])
    noted = [each for stage in result.history for each in stage.notes.get("absent", [])]
    assert len(noted) <= len(federation.wire.absences)


@settings(max_examples=25)
@given(st.dictionaries(st.integers(0, 8), st.lists(st.integers(0, M - 1), max_size=3), max_size=5))
def test_ifca_ends_whoever_does_not_answer(drops: dict[int, list[int]]) -> None:
    result = IFCA(k=2, start="distant", work=WORK).fit(Simulation(DATA, linear(4)), seed=0)
    later = {question + 3: who for question, who in drops.items()}
    found = IFCA(k=2, start="distant", work=WORK).fit(Dropping(later), seed=0)
    assert found.models.isfinite().all()
    if not any(drops.values()):
        assert torch.equal(found.models, result.models)


OTHERS: dict[str, Method] = {
    "CFL": CFL(gamma_max=0.5, warm_up=1, eps1="90%", eps2="1%", work=WORK),
    "Ditto": Ditto(work=WORK),
    "FedEM": FedEM(k=2, work=WORK),
    "FedGroup": FedGroup(k=2, pretrained=1.0, pretrain_steps=10, work=WORK),
    "FedSoft": FedSoft(k=2, work=WORK),
    "FeSEM": FeSEM(k=2, work=WORK),
    "Hierarchical": Hierarchical(k=2, global_rounds=1, work=WORK),
    "HypCluster": HypCluster(k=2, work=WORK),
    "IFCA": IFCA(k=2, start="clients", work=WORK),
    "HypCluster, drawn": HypCluster(k=2, centres="drawn", work=WORK),
    "IFCA, distant": IFCA(k=2, start="distant", work=WORK),
    "MOCHA": MOCHA(work=WORK),
    "ONE_SHOT + IFCA": OneShotIFCA(threshold="45%", work=WORK),
    "one-shot k-means": OneShotKMeans(k=2, work=WORK),
    "PACFL": PACFL(k=2, rank=2, work=WORK),
}


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=15)
@given(
    drops=st.dictionaries(
        st.integers(0, 8), st.lists(st.integers(0, M - 1), max_size=3), max_size=5
    )
)
def test_other_methods_end_whoever_does_not_answer(name: str, drops: dict[int, list[int]]) -> None:
    federation = Dropping(drops)
    found = OTHERS[name].fit(federation, seed=0)
    assert found.models.isfinite().all()
    silent = {absence.client for absence in federation.wire.absences}
    for client, label in zip(found.clients, found.labels, strict=True):
        assert label >= 0 or client in silent
    if not silent:
        expected = OTHERS[name].fit(Simulation(DATA, linear(4), device="cpu"), seed=0)
        assert torch.equal(found.models, expected.models)


ALWAYS = range(60)


@pytest.mark.parametrize(
    ("method", "prox"),
    [
        (FedEM(k=1, start="random"), 0.0),
        (FedSoft(k=1, start="random", penalty=0.1), 0.1),
    ],
)
@given(silent=st.sets(st.integers(0, M - 1), max_size=M - 1))
@settings(max_examples=10)
def test_a_mean_is_over_those_who_answer(method: Method, prox: float, silent: set[int]) -> None:
    """One round with one component, or one centre, is a round of FedAvg, whoever is silent."""
    work = Work(steps=2, local_steps=2, batch_size=None, lr=0.05)
    found = replace(method, work=work).fit(Dropping({q: sorted(silent) for q in ALWAYS}))
    whole = Dropping({}, DATA)
    starts = random_models(Run(whole, 0), 1, "start").repeat(M, 1)
    rows = whole.fit(starts, range(M), replace(work, prox=prox), KEY)
    expected = rows[[client for client in range(M) if client not in silent]].mean(0)
    torch.testing.assert_close(found.models[0], expected)


def test_who_is_silent_in_the_first_round_of_fesem_is_placed_at_the_end() -> None:
    """Trained from some centre, a network would stay near to it."""
    digits = rotated_digits(num_clients=16, rotations=2)
    federation = Dropping({0: [1, 2, 3]}, digits, model=mlp(64, 32, 10))
    work = Work(steps=60, local_steps=5, batch_size=10, lr=0.5)
    assert FeSEM(k=2, work=work).fit(federation).partition == digits.truth


def test_fedsoft_keeps_what_a_client_said_before_and_places_who_never_answers() -> None:
    questions: list[int] = []

    class Told(Dropping):
        def shares(self, models: Any, clients: Sequence[int]) -> Tensor:
            questions.append(self.asked)
            return super().shares(models, clients)

    method = FedSoft(k=2, work=WORK)
    method.fit(Told({}))
    once = method.fit(Dropping({questions[-1]: [1, 3]}))
    assert once.partition == DATA.truth
    never = method.fit(Dropping({question: [1] for question in range(questions[-1] + 3)}))
    assert never.history[-1].name == "PLACE"
    assert never.partition == DATA.truth
    assert never.own is not None
    assert torch.equal(never.own[1], never.models[never.labels[1]])


def test_who_never_answers_gets_the_last_model_of_ditto() -> None:
    found = Ditto(work=WORK).fit(Dropping({question: [1] for question in ALWAYS}))
    assert found.own is not None
    assert torch.equal(found.own[1], found.models[0])


def test_who_never_answers_is_at_the_mean_of_mocha_and_moves_nobody() -> None:
    """Of the tasks that answer the relationship "to the mean" makes what it makes without it."""
    method = MOCHA(relationship="mean", work=WORK)
    found = method.fit(Dropping({question: [M - 1] for question in ALWAYS}))
    fewer = method.fit(Dropping({}, examples.regression([20] * (M - 1), clusters=2)))
    torch.testing.assert_close(found.models[:-1], fewer.models)
    torch.testing.assert_close(found.models[-1], fewer.models.mean(0))


@pytest.mark.parametrize("name", ["CFL", "FedGroup", "Hierarchical", "one-shot k-means", "PACFL"])
def test_who_is_silent_when_clusters_are_made_is_placed_as_a_newcomer(name: str) -> None:
    """The first question that matters is not answered by clients 1 and 6."""
    question = 1 if name in ("CFL", "Hierarchical") else 0
    federation = Dropping({question: [1, 6]})
    found = OTHERS[name].fit(federation, seed=0)
    assert found.history[-1].name == "PLACE"
    again = found.assign(Simulation(DATA, linear(4), device="cpu"), [1, 6])
    assert found.labels[[1, 6]].tolist() == again.labels.tolist()


@pytest.mark.parametrize("name", ["FedGroup", "FeSEM", "Hierarchical", "one-shot k-means", "PACFL"])
def test_clusters_are_not_made_of_too_few(name: str) -> None:
    gone = {question: list(range(1, M)) for question in range(4)}
    with pytest.raises(InputError, match="only 1 clients answer, where 2 or more are wanted"):
        OTHERS[name].fit(Dropping(gone), seed=0)


def test_a_model_that_nobody_sent_is_not_counted() -> None:
    result = Global(work=replace(WORK, steps=5)).fit(Dropping({0: [1, 4, 6]}))
    assert (result.budget.models_up, result.budget.models_down) == (M - 3, M)


def test_a_start_takes_other_clients_for_those_that_are_silent() -> None:
    whole = Run(Dropping({}), 0)
    _, order = drawn_models(whole, 4, WORK, 5, "start")
    models, who = drawn_models(Run(Dropping({0: [order[0], order[2]]}), 0), 2, WORK, 5, "start")
    assert who == [order[1], order[2]]
    assert models.isfinite().all()
    gone = {question: list(range(M)) for question in range(20)}
    for start in (drawn_models, distant_models):
        with pytest.raises(InputError, match="only 0 clients answer"):
            start(Run(Dropping(gone), 0), 2, WORK, 5, "start")


def test_a_round_goes_on_without_a_client_and_a_cluster_without_any() -> None:
    w0 = torch.zeros(1, 5)
    expected = Dropping({})
    rows = expected.fit(w0.expand(M, -1), range(M), WORK, KEY)
    federation = Dropping({0: [0, 1, 3]})
    lossy = federation.fit(w0.expand(M, -1), range(M), WORK, KEY)
    labels = np.array([0, 0, 1, 1, 1, 1, 1, 1])
    before = torch.arange(10.0).view(2, 5)
    found = aggregate_clusters(federation, lossy, np.arange(M), labels, before, plain_mean)
    assert torch.equal(found[0], before[0])
    assert torch.equal(found[1], rows[[2, 4, 5, 6, 7]].mean(0))


def test_what_clusters_share_is_of_all_who_answer() -> None:
    """Nobody answers in the first cluster; the first half of a row is common to all."""
    before, labels = torch.arange(10.0).view(2, 5), np.array([0, 0, 1, 1, 1, 1, 1, 1])
    common = torch.tensor([True, True, False, False, False])
    everybody = Dropping({}).fit(before[labels], range(M), WORK, KEY)
    federation = Dropping({0: [0, 1, 3]})
    found = cluster_round(
        federation, before, np.arange(M), labels,
        trained_models(federation, WORK), plain_mean, KEY, common=common,
    )  # fmt: skip
    heard = everybody[[2, 4, 5, 6, 7]].mean(0)
    assert torch.equal(found[:, :2], heard[:2].expand(2, -1))
    assert torch.equal(found[0, 2:], before[0, 2:])
    assert torch.equal(found[1, 2:], heard[2:])


def test_what_diverges_is_told_from_what_is_absent() -> None:
    federation = Dropping({0: [2]})
    w0 = torch.zeros(M, 5)
    rows = federation.fit(w0, range(M), WORK, KEY)
    assert torch.equal(check_finite(federation, rows, range(M), "x", otherwise=w0)[2], w0[2])
    rows[5] = torch.inf
    with pytest.raises(InputError, match=r"x diverged for client '5': "):
        check_finite(federation, rows, range(M), "x", otherwise=w0)
    with pytest.raises(InputError, match="federated training diverged for cluster 0"):
        Global(work=Work(steps=50, lr=100.0)).fit(Dropping({0: [1]}))


@given(st.integers(0, 10**6))
def test_distances_are_of_those_who_answered(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    models = torch.randn(3, 5, generator=g)
    labels = torch.randint(3, (M,), generator=g).numpy()
    partition = Partition(labels)
    gone = [c for c in range(M) if float(torch.rand((), generator=g)) < 0.4]
    w = torch.randn(M, 5, generator=g)
    theirs = Side.clusters(Dropping({0: gone}), models[: partition.num_clusters], partition)
    own = Side.clients(Dropping({0: gone}), w)
    there = own.loss_on(theirs).numpy()
    alone = Simulation(DATA, linear(4), device="cpu").losses(w, range(M)).double().numpy()
    for c, members in enumerate(partition):
        known = [member for member in members if member not in gone]
        expected = alone[:, known].mean(1) if known else np.full(M, np.nan)
        assert np.allclose(there[:, c], expected, equal_nan=True)


def test_a_side_asks_again_who_did_not_answer() -> None:
    federation = Dropping({0: [1, 4]})
    side = Side.clients(federation, torch.randn(M, 5))
    first = side.losses_on(np.arange(M))
    assert first.isnan().all(0).tolist() == [client in (1, 4) for client in range(M)]
    second = side.losses_on(np.arange(M))
    assert federation.asked == 2
    expected = Simulation(DATA, linear(4), device="cpu").losses(side.models, range(M))
    assert torch.equal(second, expected)
    side.losses_on(np.arange(M))
    assert federation.asked == 2


def test_one_side_of_the_cross_loss_stands_for_both() -> None:
    w = torch.randn(M, 5)
    losses = Simulation(DATA, linear(4), device="cpu").losses(w, range(M)).double().numpy()
    w[3] = torch.nan
    losses[3] = np.nan

    class Known(Dropping):
        def losses(
            self,
            models: Tensor,
            clients: Sequence[int],
            split: Split = "train",
            sample: Sample | None = None,
        ) -> Tensor:
            found = super().losses(models.nan_to_num(), clients, split)
            found[models.isnan().any(1)] = torch.nan
            return found

    side = Side.clients(Known({0: [6], 1: [6]}), w)
    found = cross_loss(side, side)
    losses[:, 6] = np.nan
    for i in range(M):
        for j in range(M):
            both = np.array([losses[i, j], losses[j, i]])
            expected = np.nan if np.isnan(both).all() else np.nanmean(both)
            assert np.isclose(found[i, j], expected, equal_nan=True)


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_complete_is_complete_and_keeps_all_where_nothing_lacks(seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    distances = np.where(rng.random((m, m)) < 0.2, np.nan, rng.random((m, m)))
    here = complete_subset(distances)
    among = distances[np.ix_(here, here)]
    assert not np.isnan(among[~np.eye(len(here), dtype=bool)]).any()
    for other in set(range(m)) - set(here.tolist()):
        larger = np.append(here, other)
        lacking = np.isnan(distances[np.ix_(larger, larger)])
        np.fill_diagonal(lacking, False)
        assert lacking.any() or len(larger) < m
    assert complete_subset(np.zeros((m, m))).tolist() == list(range(m))


def test_lazy_clusters_leave_out_whose_distances_are_not_known() -> None:
    labels = np.arange(300) % 3
    rng = np.random.default_rng(0)
    distances = np.where(labels[:, None] == labels, 1.0, 3.0) + 0.1 * rng.random((300, 300))
    distances[[5, 17]] = np.nan
    distances[:, [5, 17]] = np.nan
    for threshold in ("auto", 2.0):
        found, _ = cluster_from_few_distances(lambda a, b: distances[np.ix_(a, b)], 300, threshold, 2)
        expected = labels.copy()
        expected[[5, 17]] = -1
        assert found == Partition(expected)


@given(st.integers(0, 10**6))
def test_held_out_tests_are_of_those_who_answered(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 20)
    losses = rng.random((3, 20)) + (labels != np.arange(3)[:, None])
    partition = Partition(labels)
    k = partition.num_clusters
    order = [int(labels[members[0]]) for members in partition]
    gone = rng.random(20) < 0.2
    lossy = losses[order].copy()
    lossy[:, gone] = np.nan
    left = Partition(partition.labels[~gone])
    found = interchangeable(lossy, partition)
    if left.num_clusters == k:
        same = [int(partition.labels[~gone][members[0]]) for members in left]
        expected = interchangeable(lossy[:, ~gone][same], left)
        assert np.array_equal(found[np.ix_(same, same)], expected)
    for c in range(k):
        if not (~gone & (partition.labels == c)).any():
            assert found[c].sum() == 1


def test_small_pieces() -> None:
    nan = torch.nan
    assert least(torch.tensor([[nan, 2.0], [nan, 1.0]])).tolist() == [-1, 1]
    rows = models_of_clients(torch.eye(2), np.array([1, -1, 0]))
    assert rows[[0, 2]].tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert rows[1].isnan().all()
    limits = reach(Dropping({0: [0, 2, 4, 6]}), torch.zeros(2, 5), Partition([0, 1] * 4))
    assert limits is not None
    assert limits[0] == torch.inf
    own = Dropping({}).losses(torch.zeros(2, 5), [1, 3, 5, 7], "validation")[1].double().numpy()
    farthest = student.ppf(norm.cdf(4.0), 3) * own.std(ddof=1) * np.sqrt(1 + 1 / 4)
    assert np.isclose(float(limits[1]), own.mean() + farthest)


def test_where_nobody_is_alike_who_is_absent_has_no_cluster() -> None:
    data = examples.regression([20] * 6, clusters=6)
    whole = SRFCA(work=WORK).fit(Simulation(data, linear(4), device="cpu"), seed=0)
    assert whole.partition.num_clusters == 6
    federation = Dropping({0: [2]}, data)
    result = SRFCA(work=WORK, distance="l2").fit(federation, seed=0)
    assert result.labels.tolist() == [0, 1, -1, 2, 3, 4]
    assert torch.equal(result.models, whole.models[[0, 1, 3, 4, 5]])


def test_where_nobody_is_alike_after_a_short_one_shot_all_train_on_alone() -> None:
    data = examples.regression([20] * 6, clusters=6)
    short = SRFCA(work=WORK, one_shot_steps=15, distance="l2")
    federation = Dropping({0: [2], 9: [4]}, data)
    result = short.fit(federation, seed=0)
    assert result.labels.tolist() == [0, 1, 2, 3, -1, 4]
    everybody = Simulation(data, linear(4), device="cpu")
    whole = local_training(everybody, everybody.initial(0), WORK, Key(0, "alone"))
    assert torch.equal(result.models, whole[[0, 1, 2, 3, 5]])
    assert [stage.name for stage in result.history[:2]] == ["ONE_SHOT", "ALONE"]


def test_clients_who_vary_are_cut_into_parts_without_those_who_do_not_answer() -> None:
    data, places = examples.on_a_line(0.5, 0)
    federation = Dropping({0: [2, 7], 1: [2, 7], 2: [2, 7]}, data, validation=0.25)
    work = Work(steps=60, local_steps=5, batch_size=10, lr=0.02)
    result = SRFCA(work=work).fit(federation, seed=0)
    first = result.history[0]
    assert "cut into 2 parts" in first.notes["reason"]
    assert [client for client, label in enumerate(first.labels) if label < 0] == [2, 7]
    assert result.partition.num_clusters == 2
    assert (result.labels >= 0).all()
    high = int(np.argmax([places[result.labels == c].mean() for c in range(2)]))
    assert places[2] > 0.5
    assert result.labels[2] == high
