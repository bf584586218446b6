"""FedGWC: rounds by hand, splits, and its paper's claim in a small form."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca import ClientData, FedAvg, LocalTraining, Partition, Simulation
from srfca.federation import Train
from srfca.methods import FedGWC
from srfca.methods.fedgwc import Cluster, affinities, find_groups
from srfca.models import linear
from tests.methods.helpers import Array, DropByNumber, arrays, descend, regressions

FULL = LocalTraining(steps=12, local_steps=3, batch_size=None, lr=0.05)


def block_affinities(labels: NDArray[np.generic]) -> Array:
    """Return affinities of 0.9 in groups and 0.05 between them, with some noise."""
    noise = np.random.default_rng(0).uniform(0, 0.05, (len(labels), len(labels)))
    blocks = np.where(labels[:, None] == labels, 0.9, 0.05)
    return np.asarray((blocks + noise + noise.T) * (1 - np.eye(len(labels))))


def test_rounds_by_hand() -> None:
    """Four rounds of half of the clients: models, rewards and interactions in a plain loop."""
    federation = DropByNumber(regressions(num_clients=6, validation=0))
    result = FedGWC(participation=0.5, local=FULL).fit(federation)
    rounds = [request.clients for request in federation.requests if isinstance(request, Train)]
    assert [len(clients) for clients in rounds] == [3, 3, 3, 3]
    samples = arrays(regressions(num_clients=6, validation=0).data)

    def loss(w: Array, client: int) -> float:
        x, y = samples[client]
        return float(((x @ w - y) ** 2).mean())

    w, cluster = np.zeros(5), Cluster.of(np.arange(6), 3)
    interactions = np.full((6, 6), 1 / 36)
    for clients in rounds:
        n = np.array([len(samples[c][1]) for c in clients])
        rows = np.stack([descend(w, x, y, 3, 0.05) for x, y in map(samples.__getitem__, clients)])
        losses = np.full((6, 2), np.nan)
        for row, client in zip(rows, clients, strict=True):
            losses[client] = loss(w, client), loss(row, client)
        rewards = np.zeros(3)
        for moment in losses[clients].T:
            mean = float(n @ moment) / n.sum()
            variance = float(n @ (moment - mean) ** 2) / n.sum()
            rewards += np.exp(-((moment - mean) ** 2) / (2 * variance)) / 2
        for i, reward in zip(clients, rewards / rewards.sum(), strict=True):
            for j in clients:
                interactions[i, j] = 0.5 * interactions[i, j] + 0.5 * reward
        cluster.observe(losses, np.array([len(y) for _, y in samples]), eps=0.0)
        w = n @ rows / n.sum()
    np.testing.assert_allclose(cluster.interactions, interactions, rtol=1e-9)
    np.testing.assert_allclose(result.models.numpy(), w[None], rtol=1e-9)


def test_affinities_by_hand() -> None:
    """Of two clients what is left is their entry with the third one."""
    rows = np.array([[0.0, 2.0, 0.0], [2.0, 0.0, 1.0], [1.0, 0.5, 0.0]])
    squares = np.square([[np.inf, 0.5, 0.75], [0.5, np.inf, 0.5], [0.75, 0.5, np.inf]])
    np.testing.assert_allclose(affinities(rows, 3.0), np.exp(-3 * squares), atol=1e-12)


def test_rewards_of_others_are_compared_or_own_ones() -> None:
    """In rounds with clients of group 0 all others are rewarded alike, by columns not by rows."""
    labels, draws = np.arange(12) % 2, np.random.default_rng(1)
    rewards = draws.uniform(size=(12, 2))[:, labels] + draws.uniform(0, 0.05, (12, 12))
    cluster = Cluster(np.arange(12), 6, rewards)
    assert Partition(cluster.groups(1.0, 4, "others")) == Partition(labels)
    assert Partition(cluster.groups(1.0, 4, "own")) != Partition(labels)
    cluster.interactions = rewards.T
    assert Partition(cluster.groups(1.0, 4, "own")) == Partition(labels)


def test_two_groups_are_found() -> None:
    labels = np.arange(12) % 2
    assert Partition(find_groups(block_affinities(labels), max_groups=4)) == Partition(labels)


def test_no_group_is_cut() -> None:
    """Three groups may be cut into two parts at first, of which one is split later."""
    labels = np.arange(12) % 3
    groups = find_groups(block_affinities(labels), max_groups=4)
    assert groups.max() > 0
    assert all(len(set(groups[labels == label])) == 1 for label in range(3))


def test_equal_affinities_are_one_group() -> None:
    assert find_groups(block_affinities(np.zeros(12)), max_groups=4).max() == 0


def test_a_split_hands_on_what_is_known() -> None:
    interactions = np.arange(16.0).reshape(4, 4)
    cluster = Cluster(np.array([2, 5, 6, 9]), 1, interactions, change=0.0, calm=3)
    first, second = cluster.split(np.array([0, 1, 0, 1]))
    assert (first.clients.tolist(), second.clients.tolist()) == ([2, 6], [5, 9])
    assert second.interactions.tolist() == [[5, 7], [13, 15]]
    assert (first.calm, first.change) == (0, 1.0)
    assert cluster.split(np.zeros(4, dtype=np.int64)) == [cluster]
    assert cluster.calm == 0, "it waits again"


def test_clients_whose_losses_deviate_leave_and_beat_one_model() -> None:
    """The paper's claim: rewards of losses show groups, and their models beat FedAvg."""
    generator = torch.Generator().manual_seed(2)
    teacher = torch.randn(8, generator=generator)
    truth = [int(client % 3 > 0) for client in range(24)]

    def draw(n: int, group: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(n, 8, generator=generator)
        y = (2 * group - 1) * (x @ teacher)
        return x, y + 0.1 * torch.randn(n, generator=generator)

    train, test = ([draw(n, group) for group in truth] for n in (30, 40))
    federation = Simulation(ClientData.from_arrays(train, test, truth), linear(8))
    local = LocalTraining(steps=400, local_steps=5, batch_size=None, lr=0.05)
    method = FedGWC(participation=0.34, gamma=1.0, eps=1e-3, compare="own", local=local)
    result = method.fit(federation, seed=2)
    assert result.history[-1].notes["splits"]
    one = FedAvg(local=local).fit(federation).scores(federation).loss.mean()
    assert float(result.scores(federation).loss.mean()) < 0.1 * float(one)


def test_if_all_clients_take_part_it_is_fedavg() -> None:
    federation = regressions()
    result = FedGWC(participation=1.0, local=FULL).fit(federation)
    torch.testing.assert_close(result.models, FedAvg(local=FULL).fit(federation).models)


def test_a_client_that_does_not_reply_gets_no_reward() -> None:
    cluster = Cluster.of(np.arange(3), 2)
    assert not cluster.observe(np.array([[1.0], [np.nan], [np.nan]]), np.ones(3), eps=1.0)
    assert (cluster.interactions == 1 / 9).all()
