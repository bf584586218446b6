from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from srfca import SRFCA, ClientData, Partition, Result, Simulation, Work
from srfca.clustering import Choice
from srfca.clustering.profile import Profile
from srfca.distances import Side
from srfca.errors import InputError
from srfca.federation import Federation
from srfca.federation.base import Mixture, Sample, Scores, Split
from srfca.methods.held_out import interchangeable, transfer
from srfca.methods.one_shot import parts
from srfca.methods.rounds import local_training, participants
from srfca.methods.run import Run
from srfca.methods.sr_fca import (
    Clusters,
    merge,
    onto_ball,
    recluster,
    trimmed_mean_gd,
    unless_worse,
)
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.loop_federation import LoopFederation

WORK = Work(steps=30, local_steps=3, batch_size=10, lr=0.05)
GIVEN = Choice("distance", 1.0, None, "given")


def regression_federation(clients: int = 12, clusters: int = 3, **kwargs: Any) -> Simulation:
    data = examples.regression([20 + i % 3 for i in range(clients)], clusters=clusters)
    return Simulation(data, linear(4), **kwargs)


def nowhere() -> Federation:
    """A federation for steps that only look at rows."""
    return Simulation(examples.regression([4]), linear(4))


points = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=1, max_size=7)


@st.composite
def clusterings(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Labels of 3 to 8 clients, -1 among them, and a point for each cluster."""
    labels = draw(
        st.lists(st.integers(-1, 4), min_size=3, max_size=8).filter(lambda x: max(x) >= 0)
    )
    partition = Partition(labels)
    size = partition.num_clusters
    pairs = st.tuples(st.integers(-5, 5), st.integers(-5, 5))
    return partition.labels.tolist(), draw(st.lists(pairs, min_size=size, max_size=size))


@given(clusterings(), st.data())
def test_recluster_sends_everybody_to_the_nearest(
    clustering: tuple[list[int], list[tuple[int, int]]], data: st.DataObject
) -> None:
    labels, omega = clustering
    pairs = st.tuples(st.integers(-5, 5), st.integers(-5, 5))
    w = data.draw(st.lists(pairs, min_size=len(labels), max_size=len(labels)))
    clusters = Clusters(Partition(labels), torch.tensor(omega).double())
    own = Side.clients(nowhere(), torch.tensor(w).double())
    found = recluster(SRFCA(distance="l2", threshold=1.0), own, clusters)
    for client, (x, y) in enumerate(w):
        squares = [(x - a) ** 2 + (y - b) ** 2 for a, b in omega]
        model = tuple(found.models[found.partition.labels[client]].tolist())
        assert model == omega[squares.index(min(squares))], "the first of the nearest"
    assert found.partition.num_clusters == len(found.models), "an emptied cluster disappears"


def test_under_auto_nobody_is_moved_to_a_worse_model() -> None:
    clusters = Clusters(Partition([0, 0, 1, -1]), torch.zeros(2, 1))
    losses = np.array([[1.0, 1.0, 2.0, 9.0], [2.0, 0.5, 2.0, 1.0]])
    moved = unless_worse(losses, clusters, np.array([1, 1, 0, 0]))
    assert moved.tolist() == [0, 1, 0, 0], "worse, better, equal, and nowhere to stay"


@given(clusterings(), st.floats(0, 8), st.integers(1, 4))
def test_merge_joins_near_models_and_averages_them(
    clustering: tuple[list[int], list[tuple[int, int]]], threshold: float, min_size: int
) -> None:
    labels, omega = clustering
    k = len(omega)
    clusters = Clusters(Partition(labels), torch.tensor(omega).double())
    options = SRFCA(distance="l2", graph="components", merge_threshold=threshold, min_size=min_size)
    found, joined = merge(options, nowhere(), clusters, GIVEN, seed=0)

    group = list(range(k))
    for _ in range(k):
        for a, b in product(range(k), repeat=2):
            if np.hypot(omega[a][0] - omega[b][0], omega[a][1] - omega[b][1]) <= threshold:
                group[a] = group[b] = min(group[a], group[b])
    clients_of = {
        g: [i for i, c in enumerate(labels) if c >= 0 and group[c] == g] for g in set(group)
    }
    kept = {g for g, members in clients_of.items() if len(members) >= min_size} or set(group)
    for client, cluster in enumerate(labels):
        label = int(found.partition.labels[client])
        if cluster < 0 or group[cluster] not in kept:
            assert label == -1
            continue
        together = [c for c in range(k) if group[c] == group[cluster]]
        expected = np.mean([omega[c] for c in together], axis=0)
        np.testing.assert_allclose(found.models[label].numpy(), expected, atol=1e-12)
        same = [i for i, c in enumerate(labels) if c >= 0 and group[c] == group[cluster]]
        assert found.partition.members(label).tolist() == same
    assert sorted(map(tuple, joined)) == sorted(
        tuple(c for c in range(k) if group[c] == g) for g in set(group) if group.count(g) > 1
    )


def test_a_lone_healthy_cluster_is_kept() -> None:
    clusters = Clusters(Partition([0, 0, 0, 1, 1]), torch.tensor([[0.0], [9.0]]))
    options = SRFCA(distance="l2", merge_threshold=1.0, min_size=2)
    found, _ = merge(options, nowhere(), clusters, GIVEN, seed=0)
    assert found.partition == clusters.partition, "t counts clients, not clusters"


def test_sr_fca_finds_the_clusters_of_regressions() -> None:
    federation = regression_federation()
    result = SRFCA(work=WORK).fit(federation, seed=0)
    assert result.partition == federation.data.truth
    assert result.history[0].name == "ONE_SHOT"
    assert result.history[0].distances is not None
    stages = ("TRIMMED_MEAN_GD", "RECLUSTER", "MERGE")
    names = [stage.name for stage in result.history[1:]]
    assert names == [f"{name} 1" for name in stages], "nothing is left to refine"


def test_refine_goes_on_while_the_clusters_change() -> None:
    federation = regression_federation()
    options = SRFCA(work=WORK, threshold=1.6, distance="l2", merge_threshold=0.0, refine_steps=9)
    result = options.fit(federation, seed=0)
    merges = [stage.partition for stage in result.history if stage.name.startswith("MERGE")]
    assert 1 < len(merges) < 9
    assert merges[-1] == merges[-2]
    assert all(merges[i] != merges[i + 1] for i in range(len(merges) - 2))


OPTIONS: dict[str, dict[str, Any]] = {
    "fixed": {"threshold": 2.5, "distance": "l2"},
    "per stage": {"threshold": 2.5, "merge_threshold": 1.0, "distance": "l2"},
    "quantile": {"threshold": "30%"},
    "components": {"graph": "components", "threshold": 2.5, "distance": "l2"},
    "cliques": {"graph": "cliques", "threshold": 2.5, "distance": "l2"},
    "l1": {"distance": "l1"},
    "l1.5": {"distance": "l1.5"},
    "linf": {"distance": "linf"},
    "cosine": {"distance": "cosine"},
    "one-sided": {"distance": "one_sided_loss"},
    "callable": {"distance": lambda a, b: torch.cdist(a.models, b.models).double().numpy()},
    "gradients": {"aggregate": "gradients", "server_lr": 0.1},
    "participation": {"participation": 0.5},
    "ball": {"diameter": 100.0},
    "resample": {"resample": True},
    "no refine": {"refine_steps": 0},
    "short ONE_SHOT": {"one_shot_steps": 25},
    "fedavg": {"final_steps": 9},
    "fedprox": {"final_steps": 9, "final_prox": 0.1},
    "no trim": {"trim": 0.0},
    "much trim": {"trim": 0.45},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_finds_the_clusters(name: str) -> None:
    federation = regression_federation()
    result = SRFCA(work=WORK, **OPTIONS[name]).fit(federation, seed=1)
    assert result.partition == federation.data.truth
    test_loss = federation.scores(result.client_models, range(12)).loss.mean()
    alone = local_training(federation, federation.initial(1), WORK, Key(1, "one_shot"))
    assert test_loss < federation.scores(alone, range(12)).loss.mean()


def test_gradients_are_one_full_batch_step_of_models() -> None:
    federation = Simulation(
        examples.regression([20 + i % 3 for i in range(12)], clusters=3),
        examples.doubled(linear(4)),
    )
    one = Work(steps=30, local_steps=1, batch_size=None, lr=0.05)
    shared = {"threshold": 2.5, "distance": "l2", "work": one, "participation": 0.5}
    models, gradients = (
        SRFCA(aggregate=what, **shared).fit(federation)  # type: ignore[arg-type]
        for what in ("models", "gradients")
    )
    assert models.partition == gradients.partition
    torch.testing.assert_close(gradients.models, models.models, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["participation", "resample", "one-sided", "fedprox"])
@pytest.mark.parametrize("block_size", [1, 5])
def test_the_same_seed_gives_the_same_answer_on_any_backend(name: str, block_size: int) -> None:
    data = examples.regression([20 + i % 3 for i in range(12)], clusters=3)
    model = examples.doubled(linear(4))
    options = SRFCA(work=WORK, **OPTIONS[name])
    expected = options.fit(LoopFederation(data, model), seed=2)
    found = options.fit(Simulation(data, model, block_size=block_size), seed=2)
    assert np.array_equal(found.labels, expected.labels)
    torch.testing.assert_close(found.models, expected.models, rtol=1e-9, atol=1e-9)
    other = options.fit(Simulation(data, model), seed=3)
    assert not torch.allclose(found.models, other.models)


@pytest.mark.parametrize("seed", range(4))
def test_one_group_is_one_cluster(seed: int) -> None:
    few = Simulation(examples.regression([20] * 12, seed=seed), linear(4))
    assert SRFCA(work=WORK).fit(few, seed).partition.num_clusters == 1, "MERGE mends a split"
    many = Simulation(examples.regression([60] * 24, d=30, seed=seed), linear(30))
    result = SRFCA(work=WORK).fit(many, seed)
    assert result.partition.num_clusters == 1
    if seed == 0:
        assert "one cluster" in result.history[0].notes["reason"]


def test_clients_that_have_nothing_in_common_stay_apart() -> None:
    data = examples.regression([60] * 9, d=30, clusters=9)
    federation = Simulation(data, linear(30))
    result = SRFCA(work=replace(WORK, steps=100)).fit(federation)
    assert result.partition == Partition(range(9))
    assert "its own" in result.history[0].notes["reason"]
    assert len(result.models) == 9


def test_transfer_is_one_for_the_alike_and_nothing_for_strangers() -> None:
    for clusters, low, high in ((1, 0.9, 1.1), (9, -5.0, 0.2)):
        federation = Simulation(examples.regression([60] * 9, d=30, clusters=clusters), linear(30))
        w0 = federation.initial(0)
        w = local_training(federation, w0, replace(WORK, steps=100), Key(0, "x"))
        assert low <= transfer(federation, w0, w) <= high


def test_interchangeable_is_a_test_of_the_excess() -> None:
    rng = np.random.default_rng(0)
    partition = Partition([0] * 20 + [1] * 20)
    level = np.exp(rng.standard_normal((1, 40)))
    alike = level * np.exp(0.1 * rng.standard_normal((2, 40)))
    assert interchangeable(alike, partition).all()
    better = alike * np.array([[0.5], [1.0]])
    assert interchangeable(better, partition).all(), "one model is better for all: still one group"
    apart = alike.copy()
    apart[0, 20:] *= 1.2
    apart[1, :20] *= 1.2
    assert not interchangeable(apart, partition)[0, 1]
    wild = np.exp(4 * rng.standard_normal((2, 6)))
    wild[0, 3:] *= 1e3
    wild[1, :3] *= 1e3
    assert not interchangeable(wild, Partition([0] * 3 + [1] * 3))[0, 1], "the test alone is blind"
    two = interchangeable(np.array([[1.0, 2.0], [2.0, 1.0]]), Partition([0, 1]))
    assert not two[0, 1], "two clients, each better off with its own"


def test_losses_close_to_nothing_do_not_decide_what_is_interchangeable() -> None:
    """A client whose few samples are all easy has a loss of 1e-6 or 1e-9: no matter which."""
    rng = np.random.default_rng(1)
    partition = Partition([0] * 20 + [1] * 20)
    losses = np.exp(0.3 * rng.standard_normal((1, 40))) * np.exp(
        0.05 * rng.standard_normal((2, 40))
    )
    losses[:, ::4] *= 1e-6 * np.exp(3 * rng.standard_normal((2, 10)))
    assert interchangeable(losses, partition).all()
    losses[0, 20:] *= 1.2
    losses[1, :20] *= 1.2
    assert not interchangeable(losses, partition)[0, 1]


def test_groups_that_were_split_are_joined_again() -> None:
    federation = regression_federation(clients=24, clusters=2)
    truth = federation.data.truth
    assert truth is not None
    halves = truth.labels * 2 + (np.arange(24) // 2) % 2
    models = torch.stack([
        federation.fit(
            federation.initial(0).expand(6, -1), members.tolist(), replace(WORK, local_steps=30),
            Key(0, "x"),
        ).mean(0)
        for members in Partition(halves)
    ])  # fmt: skip
    found, joined = merge(SRFCA(), federation, Clusters(Partition(halves), models), GIVEN, seed=0)
    assert found.partition == truth
    assert len(joined) == 2


def test_clients_left_out_are_placed() -> None:
    federation = regression_federation(clients=14, clusters=3)
    result = SRFCA(work=WORK, threshold=2.5, distance="l2", min_size=5, refine_steps=0).fit(
        federation
    )
    assert (result.history[0].labels.count(-1)) == 4
    assert result.history[-1].name == "PLACE"
    assert (result.labels >= 0).all()
    with pytest.raises(InputError, match="no cluster of at least 5"):
        SRFCA(work=WORK, threshold=0.0, min_size=5).fit(federation)
    with pytest.raises(InputError, match="no cluster of at least 13"):
        SRFCA(work=WORK, distance="l2", min_size=13).fit(regression_federation(24, 2))


def test_singletons_of_a_given_threshold_are_refined_and_joined() -> None:
    federation = regression_federation()
    options = SRFCA(work=WORK, threshold=0.0, merge_threshold=2.5, min_size=1, distance="l2")
    result = options.fit(federation)
    assert result.history[0].partition == Partition(range(12))
    assert result.partition == federation.data.truth


def test_projection_stays_in_the_ball() -> None:
    centre = torch.tensor([1.0, 0.0])
    models = torch.tensor([[1.0, 0.5], [4.0, 4.0], [1.0, 0.0]])
    projected = onto_ball(models, centre, diameter=2.0)
    assert torch.equal(projected[0], models[0])
    torch.testing.assert_close(projected[1], centre + torch.tensor([0.6, 0.8]))
    assert torch.equal(projected[2], centre)
    federation = regression_federation()
    small = SRFCA(work=WORK, diameter=0.5, threshold=2.5, distance="l2").fit(federation)
    away = (small.models - federation.initial(0)).norm(dim=1)
    assert float(away.max()) <= 0.25 + 1e-6


def test_participation_takes_a_fraction_of_every_cluster() -> None:
    federation = regression_federation()
    partition = Partition([0] * 7 + [1] * 4 + [-1])
    seen = set()
    for number in range(30):
        who = participants(federation, partition, 0.5, Key(0, "x", number))
        assert [(who < 7).sum(), ((who >= 7) & (who < 11)).sum(), (who == 11).sum()] == [4, 2, 0]
        seen |= set(who.tolist())
    assert seen == set(range(11))
    assert participants(federation, partition, 0.01, Key(0, "x")).size == 2, "never nobody"


def test_a_result_assigns_newcomers() -> None:
    federation = regression_federation(clients=15)
    data = federation.data
    result = SRFCA(work=WORK).fit(federation, seed=0)
    x, y = torch.randn(30, 4), torch.randn(30) * 50
    strangers = ClientData.from_arrays({"new": data.train.of(4), "odd": (x, y), "old": data.train.of(0)})
    found = result.assign(Simulation(strangers, linear(4)))
    assert found.labels.tolist() == [result.labels[4], -1, result.labels[0]]
    assert found.losses.shape == (3, 3)


class Unstable:
    """A federation whose clients diverge."""

    def __init__(self, inner: Simulation) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def fit(self, starts: Tensor, clients: Sequence[int], *args: Any) -> Tensor:
        rows: Tensor = self.inner.fit(starts, clients, *args)
        rows[2] = torch.nan
        return rows

    def losses(
        self,
        models: Tensor,
        clients: Sequence[int],
        split: Split = "train",
        sample: Sample | None = None,
    ) -> Tensor:
        return self.inner.losses(models, clients, split, sample)

    def scores(
        self, models: Tensor | Mixture, clients: Sequence[int], split: Split = "test"
    ) -> Scores:
        return self.inner.scores(models, clients, split)


def test_divergence_is_named() -> None:
    with pytest.raises(InputError, match=r"local training diverged for client '2'.*lower lr"):
        SRFCA(work=WORK).fit(Unstable(regression_federation()))
    with pytest.raises(InputError, match="diverged"):
        SRFCA(work=replace(WORK, lr=1e6)).fit(regression_federation())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", -1.0), ("threshold", "x"), ("merge_threshold", -0.1),
        ("merge_threshold", "30%"), ("min_size", 0), ("refine_steps", -1), ("distance", "l_2x"),
        ("graph", "clique"), ("trim", 0.5), ("trim", -0.1), ("aggregate", "model"),
        ("server_lr", 0.0), ("diameter", -1.0), ("participation", 0.0), ("participation", 1.5),
        ("one_shot_steps", 0), ("final_steps", -1), ("final_prox", -1.0),
    ],
)  # fmt: skip
def test_parameters_are_checked_when_they_are_given(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"{name.split('_')[0]}"):
        SRFCA(**{name: value})  # type: ignore[arg-type]


def test_too_few_clients() -> None:
    with pytest.raises(InputError, match="at least two clients"):
        SRFCA(work=WORK).fit(regression_federation(clients=1, clusters=1))
    with pytest.raises(InputError, match="min_size=13 is more than the 12 clients"):
        SRFCA(work=WORK, min_size=13).fit(regression_federation())
    with pytest.raises(InputError, match="held-out data"):
        SRFCA(work=WORK).fit(regression_federation(validation=0))


def test_a_threshold_of_profiles_is_none_for_merge() -> None:
    """It is for other distances: here it is more than any two clusters are apart."""
    options = SRFCA(work=WORK, threshold=50.0, metric="profile")
    federation = regression_federation(clients=24, clusters=3)
    truth = federation.data.truth
    assert truth is not None
    trained = trimmed_mean_gd(options, federation.initial(0), truth, 1, Run(federation))
    choice = Choice("profile", 50.0, None, "given")
    merged, joined = merge(options, federation, trained, choice, 0)
    assert merged.partition == truth
    assert joined == []
    without = regression_federation(validation=0)
    with pytest.raises(InputError, match="metric='profile' without a merge_threshold needs held"):
        options.fit(without)


def on_a_line(width: float, seed: int) -> tuple[Simulation, np.ndarray]:
    data, places = examples.on_a_line(width, seed)
    return Simulation(data, linear(6), validation=0.25), places


ON_A_LINE = SRFCA(work=Work(steps=60, local_steps=5, batch_size=10, lr=0.02))


@pytest.mark.parametrize("seed", [0, 2])
def test_clients_who_vary_without_a_gap_are_cut_into_parts(seed: int) -> None:
    federation, places = on_a_line(0.5, seed)
    result = ON_A_LINE.fit(federation)
    assert result.partition.num_clusters == 2
    assert "no groups" in result.history[0].notes["reason"]
    assert "cut into 2 parts" in result.history[0].notes["reason"]
    assert "no gap" in result.history[0].notes["warning"]
    ends = np.sort([places[result.labels == c].mean() for c in range(2)])
    assert ends[0] < -0.3 < 0.3 < ends[1]
    whole = replace(ON_A_LINE, refine_steps=1).fit(federation)
    assert whole.partition.num_clusters == 1, (
        "one REFINE has no training for parts that MERGE joins"
    )
    losses = [float(each.scores(federation).loss.mean()) for each in (result, whole)]
    assert losses[0] < 0.8 * losses[1]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_parts_of_clients_who_are_alike_are_joined_and_trained_together(seed: int) -> None:
    federation, _ = on_a_line(0.0, seed)
    result = ON_A_LINE.fit(federation)
    stages = {stage.name: stage.partition.num_clusters for stage in result.history}
    assert stages["ONE_SHOT"] > 1
    assert stages["MERGE 1"] == stages["TRIMMED_MEAN_GD 2"] == result.partition.num_clusters == 1
    together = Partition([0] * 40)
    w0 = federation.initial(0)
    expected = trimmed_mean_gd(ON_A_LINE, w0, together, 2, Run(federation)).models
    torch.testing.assert_close(result.models, expected)


def test_small_parts_are_left_out_and_a_single_one_is_none() -> None:
    federation, _ = on_a_line(0.5, 0)
    own = Side.clients(federation, federation.initial(0).repeat(40, 1))
    one = Partition([0] * 40)
    spots = np.zeros((40, 1))
    spots[:3], spots[3:11] = 9.0, 2.0
    profile = Profile(np.zeros(40), 1.0, np.ones((40, 1)), spots, 0.1)
    choice = Choice("distance", None, None, "no groups", profile=profile)
    found, cut = parts(ON_A_LINE, own, one, choice, np.zeros((40, 40)), 0)
    assert found.labels.tolist() == [-1] * 3 + [0] * 8 + [1] * 29
    assert cut.metric == "profile"
    same = replace(profile, landmarks=np.zeros((40, 1)))
    unchanged = replace(choice, profile=same)
    assert parts(ON_A_LINE, own, one, unchanged, np.zeros((40, 40)), 0) == (one, unchanged)
    for other in (replace(choice, profile=None), replace(choice, threshold=1.0)):
        assert parts(ON_A_LINE, own, one, other, np.zeros((40, 40)), 0) == (one, other)


def test_without_validation_a_fixed_threshold_still_works() -> None:
    federation = regression_federation(validation=0)
    result = SRFCA(work=WORK, threshold=2.5, distance="l2").fit(federation)
    assert result.partition == federation.data.truth
    assert result.reach is None
    assert result.history[0].loss is None


def test_networks_too() -> None:
    data = examples.classification([30] * 8)
    labels = [i % 2 for i in range(8)]
    train = [
        (x, y if c == 0 else 2 - y)
        for c, (x, y) in zip(labels, (data.train.of(i) for i in range(8)), strict=True)
    ]
    federation = Simulation(ClientData.from_arrays(train, truth=labels), mlp(6, 16, 3))
    result: Result = SRFCA(work=Work(steps=60, batch_size=10, lr=0.3)).fit(federation)
    assert result.partition == federation.data.truth
