"""The steps of Algorithms 1 to 4, each against a plain definition, and the whole of SR-FCA."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import SRFCA, ClientData, InputError, LocalTraining, Partition, Simulation
from srfca.distances import ModelSet
from srfca.errors import SrfcaWarning
from srfca.federation import Middleware, Replies, Request, Train
from srfca.federation.replies import T
from srfca.methods import Run
from srfca.methods.sr_fca.algorithm import merge, recluster, trimmed_mean_gd
from srfca.methods.sr_fca.clusters import Clusters, onto_ball
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.methods.helpers import NoTestData, train
from tests.methods.sr_fca.federations import FIXED, LOCAL, regressions, run_without_requests

Point = tuple[int, int]
points = st.tuples(st.integers(-5, 5), st.integers(-5, 5))


@st.composite
def clusterings(draw: st.DrawFn) -> tuple[list[int], list[Point]]:
    """Draw labels of 3 to 8 clients, -1 among them, and a point for each cluster."""
    labels = draw(
        st.lists(st.integers(-1, 4), min_size=3, max_size=8).filter(lambda x: max(x) >= 0)
    )
    partition = Partition(labels)
    size = partition.num_clusters
    return partition.labels.tolist(), draw(st.lists(points, min_size=size, max_size=size))


@given(clusterings(), st.integers(1, 3), st.data())
def test_recluster_sends_every_client_to_the_nearest_cluster(
    clustering: tuple[list[int], list[Point]], min_size: int, data: st.DataObject
) -> None:
    labels, centers = clustering
    positions = data.draw(st.lists(points, min_size=len(labels), max_size=len(labels)))
    clusters = Clusters(Partition(labels), torch.tensor(centers).double())
    run = run_without_requests()
    local_models = ModelSet.of_clients(run, torch.tensor(positions).double())
    options = SRFCA(distance="l2", threshold=1.0, min_size=min_size)
    result = recluster(run, options, clusters, local_models, FIXED)
    squares = [[(x - a) ** 2 + (y - b) ** 2 for a, b in centers] for x, y in positions]
    nearest = [row.index(min(row)) for row in squares]
    large = {c for c in nearest if nearest.count(c) >= min_size} or set(nearest)
    for client, cluster in enumerate(nearest):
        label = int(result.partition.labels[client])
        if cluster not in large:
            assert label == -1, "clusters of fewer than t clients are removed"
        else:
            model = tuple(result.models[label].tolist())
            assert model == centers[cluster], "the first of the nearest"
    assert result.partition.num_clusters == len(result.models), "an empty cluster disappears"


@given(clusterings(), st.floats(0, 8), st.integers(1, 4))
def test_merge_joins_near_models_and_averages_them(
    clustering: tuple[list[int], list[Point]], threshold: float, min_size: int
) -> None:
    labels, centers = clustering
    k = len(centers)
    clusters = Clusters(Partition(labels), torch.tensor(centers).double())
    options = SRFCA(distance="l2", graph="components", merge_threshold=threshold, min_size=min_size)
    merged, joined = merge(run_without_requests(), options, clusters, FIXED)

    group = list(range(k))
    for _ in range(k):
        for a, b in product(range(k), repeat=2):
            gap = np.hypot(centers[a][0] - centers[b][0], centers[a][1] - centers[b][1])
            if gap <= threshold:
                group[a] = group[b] = min(group[a], group[b])
    clients_of = {
        g: [i for i, c in enumerate(labels) if c >= 0 and group[c] == g] for g in set(group)
    }
    large = {g for g, members in clients_of.items() if len(members) >= min_size} or set(group)
    for client, cluster in enumerate(labels):
        label = int(merged.partition.labels[client])
        if cluster < 0 or group[cluster] not in large:
            assert label == -1
            continue
        together = [c for c in range(k) if group[c] == group[cluster]]
        expected = np.mean([centers[c] for c in together], axis=0)
        np.testing.assert_allclose(merged.models[label].numpy(), expected, atol=1e-12)
        same = [i for i, c in enumerate(labels) if c >= 0 and group[c] == group[cluster]]
        assert merged.partition.members(label).tolist() == same
    assert sorted(map(tuple, joined)) == sorted(
        tuple(c for c in range(k) if group[c] == g) for g in set(group) if group.count(g) > 1
    )


def test_merge_keeps_a_lone_cluster_of_enough_clients() -> None:
    clusters = Clusters(Partition([0, 0, 0, 1, 1]), torch.tensor([[0.0], [9.0]]))
    options = SRFCA(distance="l2", merge_threshold=1.0, min_size=2)
    merged, _ = merge(run_without_requests(), options, clusters, FIXED)
    assert merged.partition == clusters.partition, "t counts clients, not clusters"


def test_merge_joins_groups_that_were_split() -> None:
    federation = regressions(num_clients=24, clusters=2)
    truth = federation.data.truth
    assert truth is not None
    halves = truth.labels * 2 + (np.arange(24) // 2) % 2
    starts = federation.initial_model(0).expand(6, -1)
    local = replace(LOCAL, local_steps=30)
    models = torch.stack(
        [
            train(federation, starts, members.tolist(), local, Key(0, "x")).mean(0)
            for members in Partition(halves)
        ]
    )
    clusters = Clusters(Partition(halves), models)
    merged, joined = merge(Run(federation), SRFCA(), clusters, FIXED)
    assert merged.partition == truth
    assert len(joined) == 2


def test_onto_ball_projects_models() -> None:
    center = torch.tensor([1.0, 0.0])
    models = torch.tensor([[1.0, 0.5], [4.0, 4.0], [1.0, 0.0]])
    projected = onto_ball(models, center, diameter=2.0)
    assert torch.equal(projected[0], models[0])
    torch.testing.assert_close(projected[1], center + torch.tensor([0.6, 0.8]))
    assert torch.equal(projected[2], center)


def test_the_projection_leaves_buffers_as_they_are() -> None:
    run = Run(Simulation(examples.classification([9] * 2, (1, 6, 6)), examples.batch_normed))
    w0, length = run.initial_model(), max(layer.stop for layer in run.layers.values())
    models = w0 + torch.randn(2, len(w0), generator=torch.Generator().manual_seed(0))
    projected = SRFCA(diameter=2.0).projection(run)(models)
    assert torch.equal(projected[:, length:], models[:, length:])
    distance = (projected - w0)[:, :length].norm(dim=1)
    torch.testing.assert_close(distance, torch.ones(2))


def test_trimmed_mean_gd_stays_in_the_ball() -> None:
    federation = regressions()
    result = SRFCA(local=LOCAL, diameter=0.5, threshold=2.5, distance="l2").fit(federation)
    distance = (result.models - federation.initial_model(0)).norm(dim=1)
    assert float(distance.max()) <= 0.25 + 1e-6


def test_sr_fca_finds_the_clusters_of_regressions() -> None:
    federation = regressions()
    result = SRFCA(local=LOCAL).fit(federation, seed=0)
    assert result.partition == federation.data.truth
    assert result.history[0].name == "ONE_SHOT"
    assert result.history[0].distances is not None
    stages = ("TRIMMED_MEAN_GD", "RECLUSTER", "MERGE")
    names = [stage.name for stage in result.history[1:]]
    assert names[:3] == [f"{name} 1" for name in stages]
    trials = ["TOGETHER", "TRY_FINE_TUNE", "DECIDE"]
    assert names[3:] == trials, "nothing remains to refine"


def test_sr_fca_finds_the_clusters_of_networks() -> None:
    data = examples.classification([30] * 8)
    labels = [i % 2 for i in range(8)]
    samples = (data.train.of(i) for i in range(8))
    train = [(x, y if c == 0 else 2 - y) for c, (x, y) in zip(labels, samples, strict=True)]
    federation = Simulation(ClientData.from_arrays(train, truth=labels), mlp(6, 16, 3))
    result = SRFCA(local=LocalTraining(steps=60, batch_size=10, lr=0.3)).fit(federation)
    assert result.partition == federation.data.truth


def test_refine_repeats_while_the_clusters_change() -> None:
    options = SRFCA(local=LOCAL, threshold=1.6, distance="l2", merge_threshold=0.0, refine_steps=9)
    result = options.fit(regressions(), seed=0)
    merges = [stage.partition for stage in result.history if stage.name.startswith("MERGE")]
    assert 1 < len(merges) < 9
    assert merges[-1] == merges[-2]
    assert all(merges[i] != merges[i + 1] for i in range(len(merges) - 2))


def test_refine_runs_refine_steps_times_without_early_stop() -> None:
    options = SRFCA(
        local=LOCAL, threshold=2.5, distance="l2", refine_steps=3, stop_early=False
    )  # fmt: skip
    result = options.fit(regressions(), seed=0)
    steps = [stage.name for stage in result.history if stage.name.startswith("MERGE")]
    assert steps == ["MERGE 1", "MERGE 2", "MERGE 3"]


def test_a_cluster_of_one_does_not_enter_the_mean_of_merge() -> None:
    run = run_without_requests(5)
    clusters = Clusters(Partition([0, 0, 0, 1, 1]), torch.tensor([[0.0], [1.0]]))
    positions = torch.tensor([[0.0], [0.0], [0.0], [0.0], [1.0]])
    options = SRFCA(distance="l2", threshold=2.0, min_size=2)
    local_models = ModelSet.of_clients(run, positions)
    reclustered = recluster(run, options, clusters, local_models, FIXED)
    assert reclustered.partition == Partition([0, 0, 0, 0, -1])
    merged, joined = merge(run, options, reclustered, FIXED)
    assert merged.models.tolist() == [[0.0]]
    assert joined == []


def test_merge_first_runs_merge_before_recluster() -> None:
    options = SRFCA(local=LOCAL, threshold=2.5, distance="l2", refine_steps=1, merge_first=True)
    federation = regressions()
    result = options.fit(federation, seed=0)
    names = [stage.name for stage in result.history]
    assert names == ["ONE_SHOT", "TRIMMED_MEAN_GD 1", "MERGE 1", "RECLUSTER 1"]
    assert result.partition == federation.data.truth
    held_out = SRFCA(
        local=LOCAL, threshold=0.0, merge_threshold=2.5, min_size=1, distance="l2",
        refine_steps=1, merge_first=True,
    )  # fmt: skip
    assert held_out.fit(federation).partition == federation.data.truth


def test_a_warm_start_begins_where_the_clusters_are() -> None:
    """From the means of local models first, then from the clusters' models."""
    federation = regressions(num_clients=6, clusters=2)
    watched = NoTestData(federation)
    options = SRFCA(
        local=replace(LOCAL, local_steps=30), threshold=2.5, distance="l2", trim=0.0,
        trim_at_least=0, refine_steps=2, continue_training=True,
    )  # fmt: skip
    result = options.fit(watched)
    truth = federation.data.truth
    assert truth is not None
    one_shot, *rounds = watched.trainings
    local_models = federation.ask(one_shot).values
    means = torch.stack([local_models[members.tolist()].mean(0) for members in truth])
    assert len(rounds) == 2, "unchanged clusters train on"
    for request in rounds:
        order = np.argsort(request.clients).tolist()
        torch.testing.assert_close(request.starts[order], means[truth.labels.tolist()])
        trained = federation.ask(request).values[order]
        means = torch.stack([trained[members.tolist()].mean(0) for members in truth])
    assert not torch.equal(rounds[0].starts, rounds[1].starts)
    torch.testing.assert_close(result.models, means)


def test_singletons_of_a_fixed_threshold_are_refined_and_joined() -> None:
    federation = regressions()
    options = SRFCA(local=LOCAL, threshold=0.0, merge_threshold=2.5, min_size=1, distance="l2")
    result = options.fit(federation)
    assert result.history[0].partition == Partition(range(12))
    assert result.partition == federation.data.truth


def test_unclustered_clients_are_placed_in_the_end() -> None:
    federation = regressions(num_clients=14, clusters=3)
    options = SRFCA(local=LOCAL, threshold=2.5, distance="l2", min_size=5, refine_steps=0)
    result = options.fit(federation)
    assert result.history[0].labels.count(-1) == 4
    assert result.history[-1].name == "PLACE"
    assert (result.labels >= 0).all()
    with pytest.raises(InputError, match="no cluster of at least 5"):
        SRFCA(local=LOCAL, threshold=0.0, min_size=5).fit(federation)
    large = SRFCA(local=LOCAL, distance="l2", min_size=13).fit(regressions(24, 2))
    assert large.history[0].partition == Partition([0] * 24), "one cluster, if groups are smaller"


@pytest.mark.parametrize("seed", range(4))
def test_one_group_is_one_cluster(seed: int) -> None:
    few = Simulation(examples.regression([20] * 12, seed=seed), linear(4))
    assert SRFCA(local=LOCAL).fit(few, seed).partition.num_clusters == 1, "MERGE undoes a split"
    many = Simulation(examples.regression([60] * 24, d=30, seed=seed), linear(30))
    result = SRFCA(local=LOCAL).fit(many, seed)
    assert result.partition.num_clusters == 1
    if seed == 0:
        assert "one cluster" in result.history[0].notes["reason"]


def test_clients_with_nothing_in_common_are_clusters_of_one() -> None:
    data = examples.regression([60] * 9, d=30, clusters=9)
    result = SRFCA(local=replace(LOCAL, steps=100)).fit(Simulation(data, linear(30)))
    assert result.partition == Partition(range(9))
    assert result.history[-1].notes["chosen"] == "every client alone"
    assert len(result.models) == 9


def test_a_result_assigns_newcomers() -> None:
    federation = regressions(num_clients=15)
    data = federation.data
    result = SRFCA(local=LOCAL).fit(federation, seed=0)
    x, y = torch.randn(30, 4), torch.randn(30) * 50
    newcomers = ClientData.from_arrays(
        {"like 4": data.train.of(4), "unlike all": (x, y), "like 0": data.train.of(0)}
    )
    assignment = result.assign(Simulation(newcomers, linear(4)))
    assert assignment.labels.tolist() == [result.labels[4], -1, result.labels[0]]
    assert assignment.losses.shape == (3, 3)


class Diverging(Middleware):
    """Make the trained model of client 2 NaN."""

    def ask(self, request: Request[T]) -> Replies[T]:
        replies = self.federation.ask(request)
        if isinstance(request, Train) and isinstance(replies.values, torch.Tensor):
            replies.values[request.clients == 2] = torch.nan
        return replies


def test_divergence_of_one_client_is_named_and_that_of_all_is_an_error() -> None:
    with pytest.warns(SrfcaWarning, match=r"refused a reply of client '2'.*lower lr"):
        SRFCA(local=LOCAL).fit(Diverging(regressions()))
    with pytest.raises(InputError, match="diverged"):
        SRFCA(local=replace(LOCAL, lr=1e6)).fit(regressions())


def test_trimmed_mean_gd_trains_every_cluster_from_the_initial_model() -> None:
    """With one client a cluster, and no trim, it is the training of that client alone."""
    federation = regressions(num_clients=3)
    run, options = Run(federation), SRFCA(local=replace(LOCAL, local_steps=30), trim=0.0)
    clusters = trimmed_mean_gd(run, options, Partition([0, 1, 2]), step=1)
    starts = federation.initial_model(0).expand(3, -1)
    expected = train(federation, starts, range(3), options.local, Key(0, "refine 1"))
    assert torch.equal(clusters.models, expected)
