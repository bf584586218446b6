"""FedDrift: two time steps by hand, merging, and its paper's claim in a small form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import InputError, LocalTraining, Simulation
from srfca.methods import FedAvg, FedDrift, Run
from srfca.methods.feddrift import cluster_distances
from srfca.models import linear
from tests import examples
from tests.methods.helpers import descend, regressions, scores

LOCAL = LocalTraining(steps=60, local_steps=30, batch_size=None, lr=0.1)
LONGER = LocalTraining(steps=60, local_steps=5, batch_size=10, lr=0.05)


@pytest.mark.parametrize("eager", [False, True])
def test_two_time_steps_by_hand(eager: bool) -> None:
    made = examples.regression([20, 21, 22, 23], clusters=2)
    federation = Simulation(made, examples.doubled(linear(4, bias=False)))
    samples = [federation._samples["train"].of(c) for c in range(4)]
    arrays = [(x.numpy(), y.numpy()) for x, y in samples]
    n = np.array([len(y) for _, y in arrays])

    def loss(w: np.ndarray, client: int) -> float:
        x, y = arrays[client]
        return float(((x @ w - y) ** 2).mean())

    alone = np.stack([descend(np.zeros(4), x, y, 30, 0.1) for x, y in arrays])
    common = n @ alone / n.sum()
    rises = [loss(common, c) - loss(alone[c], c) for c in range(4)]
    excess = np.array([[loss(alone[i], j) - loss(alone[j], j) for j in range(4)] for i in range(4)])
    distances = np.maximum(np.maximum(excess, excess.T), 0)
    delta = 0.95 * min(rises)
    groups = [[0, 2], [1, 3]]
    assert max(distances[0, 2], distances[1, 3]) < delta < distances[np.ix_(*groups)].min()
    if eager:
        starts, groups = [common], [[0, 1, 2, 3]]
    else:
        starts = [n[g] @ alone[g] / n[g].sum() for g in groups]
    expected = []
    for start, members in zip(starts, groups, strict=True):
        rows = np.stack([descend(start, *arrays[c], 30, 0.1) for c in members])
        expected.append(n[members] @ rows / n[members].sum())
    method = FedDrift(delta=delta, time_steps=2, eager=eager, local=LOCAL)
    result = method.fit(federation)
    assert result.labels.tolist() == ([0, 0, 0, 0] if eager else [0, 1, 0, 1])
    np.testing.assert_allclose(result.models.numpy(), np.stack(expected), rtol=1e-9)
    assert result.history[-1].notes["drifted"] == 4


def test_distances_are_zero_for_models_that_do_equally_well() -> None:
    losses = np.array([[0.2, 0.1, 0.9], [0.2, 0.1, 0.9], [0.8, 0.7, 0.1]])
    distances = cluster_distances(losses, np.array([0, 1, 2]), np.ones(3))
    np.testing.assert_allclose(distances, [[0, 0.1, 0.7], [0.1, 0, 0.8], [0.7, 0.8, 0]], atol=1e-12)


def test_an_unknown_loss_is_no_reason_to_merge() -> None:
    losses = np.array([[0.2, np.inf], [0.2, np.nan]])
    distances = cluster_distances(losses, np.array([0, 0]), np.ones(2))
    assert distances[0, 1] > 1e300
    assert np.isfinite(distances).all()


def test_concepts_are_found_without_their_number_and_beat_one_model() -> None:
    federation = regressions()
    result = FedDrift(delta=2.0, local=LONGER).fit(federation)
    assert result.partition == federation.data.truth
    one = FedAvg(local=LONGER).fit(federation).scores(federation).loss.mean()
    assert float(result.scores(federation).loss.mean()) < 0.5 * float(one)


def test_clients_of_one_concept_end_with_one_model() -> None:
    """Some drift at first, because a model of one client fits its data better; they are merged."""
    federation = regressions(clusters=1)
    result = FedDrift(delta=2.0, local=LONGER).fit(federation)
    assert result.history[1].notes["drifted"] > 0
    assert result.partition.num_clusters == 1


@pytest.mark.parametrize("clusters", [1, 3])
def test_delta_follows_from_what_models_of_one_client_lose_on_held_out_data(clusters: int) -> None:
    federation = regressions(clusters=clusters)
    result = FedDrift(local=LONGER).fit(federation)
    assert result.partition.num_clusters == clusters
    run, method = Run(federation), FedDrift(local=LONGER)
    alone, reference = method.train_alone(run)
    held_out = scores(federation, alone, "validation").loss.numpy()
    expected = 1.5 * float((held_out - reference).mean())
    assert result.history[1].notes["delta"] == pytest.approx(expected)
    fixed = FedDrift(delta=expected, local=LONGER).fit(federation)
    assert torch.equal(fixed.models, result.models)


def test_without_held_out_data_delta_must_be_set() -> None:
    federation = Simulation(examples.regression([20] * 4), linear(4), validation=0)
    with pytest.raises(InputError, match="no validation split: set delta"):
        FedDrift(local=LOCAL).fit(federation)
    FedDrift(local=LOCAL, delta=1.0).fit(federation)


def test_a_large_delta_is_fedavg() -> None:
    federation = regressions()
    result = FedDrift(delta=1e9, time_steps=3, local=LOCAL).fit(federation)
    torch.testing.assert_close(result.models, FedAvg(local=LOCAL).fit(federation).models)


def test_time_steps_cover_all_rounds() -> None:
    local = LocalTraining(steps=35, local_steps=5)
    assert FedDrift(time_steps=3, local=local).spans == [range(3), range(3, 5), range(5, 7)]
    assert FedDrift(time_steps=3, local=local).alone_steps == 15
    single = FedDrift(local=LocalTraining(steps=5, local_steps=5))
    assert (single.spans, single.alone_steps) == ([range(1)], 0)
