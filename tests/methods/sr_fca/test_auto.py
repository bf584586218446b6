"""The automatic threshold: what ONE_SHOT finds, who moves, outliers, and the last decision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from srfca import SRFCA, ClientData, LocalTraining, Partition, Result, Simulation, data
from srfca.clustering import Choice
from srfca.clustering.profile import Profile
from srfca.distances import ModelSet
from srfca.federation import ClientScores
from srfca.methods import FedAvg, Run
from srfca.methods.sr_fca.algorithm import trimmed_mean_gd
from srfca.methods.sr_fca.auto import Auto, race, split
from srfca.methods.sr_fca.clusters import Clusters
from srfca.methods.sr_fca.final_decision import better, describe, place
from srfca.methods.sr_fca.outliers import outliers, own_gain
from srfca.methods.sr_fca.thresholds import OneShot
from srfca.models import linear, mlp
from tests import examples
from tests.methods.helpers import ScriptedLosses
from tests.methods.sr_fca.federations import FIXED, LOCAL, on_a_line, regressions

ON_A_LINE = SRFCA(local=LocalTraining(steps=60, local_steps=5, batch_size=10, lr=0.02))
DIGITS = LocalTraining(steps=100, local_steps=5, batch_size=10, lr=0.5)


def scores(losses: list[float], accuracy: list[float] | None = None) -> ClientScores:
    """Return scores of ten samples each."""
    known = None if accuracy is None else torch.tensor(accuracy)
    return ClientScores(torch.tensor(losses), known, torch.full((len(losses),), 10))


def digits(labels: list[int], seed: int = 0) -> Simulation:
    """Return digits; clients of label 0 are alike, each other label permutes the classes."""
    made = data.rotated_digits(num_clients=len(labels), rotations=1, seed=seed)
    rng = np.random.default_rng(seed)
    orders = [np.arange(10)] + [rng.permutation(10) for _ in range(max(labels))]

    def relabeled(samples: object, client: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = samples.of(client)  # type: ignore[attr-defined]
        return x.numpy(), orders[labels[client]][y.numpy()]

    assert made.test is not None
    everyone = range(len(labels))
    train = [relabeled(made.train, client) for client in everyone]
    test = [relabeled(made.test, client) for client in everyone]
    clients = ClientData.from_arrays(train, test, labels)
    return Simulation(clients, mlp(64, 32, 10), validation=0.25, seed=seed)


def test_auto_moves_no_client_to_a_worse_model() -> None:
    clusters = Clusters(Partition([0, 0, 1, 1]), torch.zeros(2, 5))
    losses = torch.tensor([[1.0, 1.0, 2.0, 9.0], [2.0, 0.5, 2.0, 1.0]]).T
    run = Run(ScriptedLosses(regressions(num_clients=4), losses))
    local_models = ModelSet.of_clients(run, torch.zeros(4, 5))
    distances = np.array([[2.0, 1.0], [2.0, 1.0], [1.0, 2.0], [2.0, 1.0]])
    moved = Auto("auto").allow_moves(run, clusters, local_models, distances, FIXED)
    assert moved.tolist() == [0, 1, 0, 1], "worse, better, equal, and where it was"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_parts_of_clients_that_are_alike_are_not_kept(seed: int) -> None:
    federation, _ = on_a_line(0.0, seed)
    result = ON_A_LINE.fit(federation)
    assert result.partition == Partition([0] * 40)
    assert result.history[-1].notes["chosen"] == "one model for all"
    assert result.warning == result.history[-1].notes["warning"]


@pytest.mark.parametrize("seed", [0, 2])
def test_clients_that_vary_without_a_gap_are_served_by_more_than_one_model(seed: int) -> None:
    federation, places = on_a_line(0.5, seed)
    result = ON_A_LINE.fit(federation)
    assert result.partition.num_clusters == 2
    ends = np.sort([places[result.labels == c].mean() for c in range(2)])
    assert ends[0] < -0.3 < 0.3 < ends[1]
    one = FedAvg(local=ON_A_LINE.local).fit(federation)
    assert result.scores(federation).loss.mean() < 0.8 * one.scores(federation).loss.mean()


def test_small_parts_are_unclustered_and_a_single_part_is_no_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    federation, _ = on_a_line(0.5, 0)
    run = Run(federation)
    coordinates = np.zeros((40, 1))
    coordinates[:3], coordinates[3:11] = 9.0, 2.0
    profile = Profile(np.zeros(40), 1.0, np.ones((40, 1)), coordinates, 0.1)
    choice = Choice("distance", None, None, "no groups", profile=profile)
    found = OneShot(Partition([0] * 40), choice, compared=np.arange(40))
    monkeypatch.setattr("srfca.methods.sr_fca.auto.lead_midway", lambda *_: 99.0)
    parts = split(run, ON_A_LINE, found)
    assert parts.partition.labels.tolist() == [-1] * 3 + [0] * 8 + [1] * 29
    assert parts.choice.metric == "profile"
    assert parts.choice.warning is not None
    same = replace(choice, profile=replace(profile, landmarks=np.zeros((40, 1))))
    for other in (replace(found, choice=same), replace(found, compared=None)):
        assert split(run, ON_A_LINE, other) is other
    monkeypatch.setattr("srfca.methods.sr_fca.auto.lead_midway", lambda *_: -99.0)
    whole = split(run, ON_A_LINE, found)
    assert whole.partition == found.partition, "the parts must lead on held-out data"
    assert (parts.started, whole.started) != (None, None)
    assert parts.rival is not None
    assert parts.rival.partition == found.partition


def test_outliers_are_far_and_do_better_with_their_own_model() -> None:
    distances = np.array([[1.0], [1.1], [0.9], [1.0], [9.0], [9.0], [2.0], [np.nan]])
    labels = np.zeros(8, dtype=np.int64)
    trained_by = Partition([0, 0, 0, 0, -1, -1, -1, -1])
    cluster = scores([1.0, 1.0, 9.0, 1.0, 9.0, 1.0, 2.0, 9.0])
    own = scores([1.5, 1.2, 0.5, 1.5, 0.5, 1.5, 1.9, 0.5])
    found = outliers(distances, labels, cluster, own, trained_by)
    assert found.tolist() == [False] * 4 + [True, False, False, False]
    very_far = scores([1.0] * 4 + [9.0, 1.0, 2.0, 9.0])
    better_own = scores([1.5] * 4 + [0.5, 0.9, 1.9, 0.5])
    assert outliers(distances, labels, very_far, better_own, trained_by)[5], "better is enough"


def test_the_spread_of_a_small_cluster_is_at_least_that_of_all_clusters() -> None:
    """Eight clients that happen to be alike do not make a ninth one an outlier."""
    wide = np.exp(np.linspace(-0.5, 0.5, 20))
    near = np.append(np.linspace(0.99, 1.01, 8), 2.6)
    distances = np.stack([np.append(near, wide), np.append(0 * near + 9, wide)], axis=1)
    partition = Partition([0] * 9 + [1] * 20)
    cluster, own = scores([1.0] * 8 + [3.0] + [1.0] * 20), scores([1.5] * 8 + [0.5] + [1.5] * 20)
    assert not outliers(distances, partition.labels, cluster, own, partition).any()
    distances[8, 0] = 9.0
    found = outliers(distances, partition.labels, cluster, own, partition)
    assert np.flatnonzero(found).tolist() == [8]


def test_two_outliers_are_no_cluster_of_their_own() -> None:
    """Far from everyone and from each other, compared with the clients of the other clusters."""
    distances = np.array([[0.8 + 0.02 * i, 9.0] for i in range(8)] + [[12.0, 2.2], [11.0, 2.2]])
    partition = Partition([0] * 8 + [1, 1])
    cluster = scores([1.0] * 8 + [3.0, 3.0])
    own = scores([1.5] * 8 + [0.8, 0.8])
    found = outliers(distances, partition.labels, cluster, own, partition)
    assert found.tolist() == [False] * 8 + [True, True]
    near = np.where(distances == 2.2, 1.0, distances)
    assert not outliers(near, partition.labels, cluster, own, partition).any()
    assert not outliers(distances, partition.labels, own, cluster, partition).any()


def test_accuracy_decides_over_the_loss_where_it_is_clear_or_not_higher() -> None:
    alone = scores([2.0, 2.0, 1.0, 1.0], [0.9, 0.5, 0.5, 0.4])
    other = scores([1.0, 1.0, 9.0, 9.0], [0.1, 0.4, 0.5, 0.5])
    gain = own_gain(alone, other)
    assert np.isposinf(gain).tolist() == [True, False, False, False]
    assert np.isneginf(gain).tolist() == [False, False, True, True]


def test_clients_without_distances_are_placed_by_loss() -> None:
    losses = torch.tensor([[1.0, 2.0], [2.0, 1.0], [5.0, 1.0], [1.0, 5.0]])
    run = Run(ScriptedLosses(regressions(num_clients=4), losses))
    clusters = Clusters(Partition([0, 1, -1, -1]), torch.zeros(2, 5))
    distances = np.array([[0.0, 1.0], [1.0, 0.0], [np.nan, np.nan], [2.0, 1.0]])
    assert place(run, clusters, distances).partition.labels.tolist() == [0, 1, 1, 1]
    assert place(run, clusters.relabel(np.array([0, 1, 1, 1])), distances).partition == Partition(
        [0, 1, 1, 1]
    )


def test_separated_clusters_get_the_benefit_of_the_doubt() -> None:
    clusters = Clusters(Partition([0, 0, 1, 1]), torch.zeros(2, 1))
    one = Clusters(Partition([0] * 4), torch.zeros(1, 1))
    equal = scores([1.0] * 4, [0.5, 0.6, 0.7, 0.8])
    found = OneShot(clusters.partition, Choice("distance", 1.0, None, ""), separation=2.0)
    kept, _, doubt = better(SRFCA(), clusters, one, lambda _: equal, found)
    assert kept is clusters
    assert doubt is not None
    assert "one model for all may do as well" in doubt, "although they are separated"
    weak = replace(found, separation=1.1)
    kept, other, doubt = better(SRFCA(), clusters, one, lambda _: equal, weak)
    assert kept is one
    assert other.name == "2 clusters"
    assert doubt is not None
    assert "2 clusters may do as well" in doubt


@pytest.mark.parametrize(
    ("midway", "parts", "doubt"),
    [
        ([0.9, 0.8, 0.9, 0.9], False, None),
        ([0.3, 0.3, 0.4, 0.3], False, "given up after a third of its training"),
        ([0.9, 0.8, 0.9, 0.9], True, "without a gap"),
    ],
)
def test_a_rival_that_was_given_up_too_early_is_a_doubt(
    midway: list[float], parts: bool, doubt: str | None
) -> None:
    behind = scores([1.0] * 4, [0.1, 0.2, 0.2, 0.1])
    partition = Partition([0, 0, 1, 1])
    clusters = Clusters(partition, torch.zeros(2, 1), midway=scores([1.0] * 4, midway))
    rival = Clusters(Partition([0] * 4), torch.zeros(1, 1), midway=behind)
    found = OneShot(partition, Choice("distance", 1.0, None, ""), parts=parts)
    ended = scores([1.0] * 4, [0.9, 0.9, 0.9, 1.0])
    kept, other, reason = better(SRFCA(), clusters, rival, lambda _: ended, found)
    assert kept is clusters
    assert "given up" in other.variant
    assert (reason is None) == (doubt is None)
    assert doubt is None or doubt in str(reason)


def test_partitions_are_described() -> None:
    alone = np.array([True, False, False, False, False])
    assert describe(Partition([0, 0, 0, 0, 0]), alone) == "one cluster and 1 client alone"
    assert describe(Partition([0, 0, 0, 1, 1]), alone) == "2 clusters and 1 client alone"
    assert describe(Partition([0, 1])) == "every client alone"


def test_outliers_beside_a_cluster_keep_their_own_models() -> None:
    federation = digits([0] * 18 + [1, 2])
    result = SRFCA(local=DIGITS).fit(federation)
    assert result.partition == federation.data.truth
    assert result.partition.alone.tolist() == [18, 19]
    notes = result.history[-1].notes
    assert notes["chosen"] == "one cluster and 2 clients alone"
    assert notes["outliers"] == ["18", "19"]
    assert "2 clients alone" in result.summary()
    alone = [int(result.labels[client]) for client in (18, 19)]
    test = result.scores(federation).accuracy
    assert test is not None
    assert bool((test[18:] > 0.3).all())
    assert len(set(alone)) == 2


def test_fine_tuned_models_are_saved_with_the_result(tmp_path: Path) -> None:
    made = data.rotated_digits(num_clients=2, rotations=1)
    x, y = made.train.x.numpy(), made.train.y.numpy()
    skewed = []
    for client in range(20):  # three classes each, some 20 samples
        samples = np.flatnonzero((y + client) % 10 < 3)[client::20]
        skewed.append((x[samples], y[samples]))
    federation = Simulation(ClientData.from_arrays(skewed), mlp(64, 32, 10), validation=0.25)
    local = LocalTraining(steps=60, local_steps=5, batch_size=10, lr=0.2)
    result = SRFCA(local=local).fit(federation)
    notes = result.history[-1].notes
    assert "fine-tuned" in notes["variant"]
    assert result.individual_models is not None
    result.save(tmp_path)
    loaded = Result.load(tmp_path)
    assert torch.equal(loaded.client_models, result.client_models)
    assert loaded.history[-1].notes == notes


def test_trials_can_be_forbidden_and_the_clients_own_fine_tuning_replaces_them() -> None:
    federation = regressions()
    names = {
        steps: [
            stage.name for stage in SRFCA(local=LOCAL, trial_steps=steps).fit(federation).history
        ]
        for steps in (0, 10, None)
    }
    assert "TOGETHER" not in names[0] + names[10]
    assert "TRY_FINE_TUNE" not in names[0]
    assert "TRY_FINE_TUNE" in names[10]
    assert {"TOGETHER", "TRY_FINE_TUNE"} < set(names[None])
    explicit = SRFCA(local=LOCAL, fine_tune_steps=10).fit(federation)
    stages = [stage.name for stage in explicit.history]
    assert "TRY_FINE_TUNE" not in stages
    assert stages[-1] == "FINE_TUNE"


def test_clusters_that_the_last_merge_joined_are_trained_again() -> None:
    federation, _ = on_a_line(0.0, 0)
    run, options = Run(federation), replace(ON_A_LINE, trial_steps=0)
    together = Partition([0] * 40)
    joined = replace(Clusters(together, torch.zeros(1, 7)), averaged=True)
    local_models = ModelSet.of_clients(run, run.initial_model().repeat(40, 1))
    found = OneShot(together, Choice("distance", None, None, ""), distance="l2")
    finished = Auto("auto").finish(run, options, joined, local_models, found)
    expected = trimmed_mean_gd(Run(federation), options, together, "last").models
    torch.testing.assert_close(finished.models, expected)


def test_clients_with_nothing_in_common_are_alone_and_it_says_so() -> None:
    clients = examples.regression([60] * 9, d=30, clusters=9)
    federation = Simulation(clients, linear(30))
    result = SRFCA(local=replace(LOCAL, steps=100)).fit(federation)
    assert result.partition == Partition(range(9))
    notes = result.history[-1].notes
    assert notes["chosen"] == "every client alone"
    assert notes["outliers"] == [], "nobody is alone beside clusters"
    assert "Chose every client alone (loss" in notes["decision"]


def test_held_out_data_choose_between_two_candidates_and_the_winner_trains_on() -> None:
    federation, options = regressions(), SRFCA(local=LOCAL)
    truth = federation.data.truth
    assert truth is not None
    wrong = Partition(np.arange(len(truth)) // (len(truth) // 2))
    assert wrong != truth
    choice = Choice("distance", None, None, "")
    right, other = (OneShot(partition, choice) for partition in (truth, wrong))
    for first, second in ((right, other), (other, right)):
        run = Run(federation)
        found = race(run, options, first, second)
        assert found.partition == truth
        assert found.started is not None
        assert found.rival is not None
        assert found.rival.partition == wrong
        trained = trimmed_mean_gd(run, options, truth, 1, started=found.started)
        first_third = options.segments[0].stop * LOCAL.local_steps
        steps = len(truth) * (LOCAL.steps + first_third)
        assert run.history[-1].budget.local_steps == steps, "with that of the other candidate"
        assert trained.rounds_done == LOCAL.rounds
    assert race(Run(federation), options, right, right) is right


def test_a_candidate_that_was_given_up_is_in_the_decision() -> None:
    federation, options = regressions(), SRFCA(local=LOCAL)
    truth = federation.data.truth
    assert truth is not None
    run = Run(federation)
    clusters = trimmed_mean_gd(run, options, truth, 1)
    local_models = ModelSet.of_clients(run, run.initial_model().repeat(len(truth), 1))
    pairs = Partition(np.arange(len(truth)) % 2)
    rival = replace(Clusters.untrained(pairs, run.initial_model()), midway=clusters.midway)
    found = OneShot(truth, Choice("distance", None, None, ""), started=clusters, rival=rival)
    Auto("auto").finish(run, options, clusters, local_models, found)
    notes = run.history[-1].notes
    assert "2 clusters, given up after a third of the training" in notes["decision"]
    assert notes["warning"].startswith("2 clusters may do as well")
