"""StoCFL: two rounds by hand, merging, its paper's claim in a small form, and partial rounds."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import LocalTraining, Partition, Simulation
from srfca.methods import FedAvg, StoCFL
from srfca.methods.stocfl import merge_similar
from srfca.models import linear
from tests import examples
from tests.methods.helpers import DIGITS, Array, descend, digits

LOCAL = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.05)


def pulled(w: Array, x: Array, y: Array, anchor: Array, lam: float) -> Array:
    """Return a linear model after two full-batch steps with a proximal term."""
    for _ in range(2):
        w = w - 0.05 * (2 * x.T @ (x @ w - y) / len(y) + lam * (w - anchor))
    return w


def test_two_rounds_by_hand() -> None:
    made = examples.regression([20, 21, 22, 23], clusters=2)
    federation = Simulation(made, examples.doubled(linear(4, bias=False)))
    samples = [federation._samples["train"].of(c) for c in range(4)]
    arrays = [(x.numpy(), y.numpy()) for x, y in samples]
    n = np.array([len(y) for _, y in arrays])
    omega, theta = np.zeros(4), np.zeros((2, 4))
    groups = [[0, 2], [1, 3]]
    for _ in range(2):
        rows = np.stack([descend(omega, x, y, 2, 0.05) for x, y in arrays])
        for k, members in enumerate(groups):
            moved = np.stack([pulled(theta[k], *arrays[c], omega, 0.3) for c in members])
            theta[k] = n[members] @ moved / n[members].sum()
        omega = n @ rows / n.sum()
    method = StoCFL(tau=0.5, mu=0.3, anchor_steps=3, local=LOCAL)
    result = method.fit(federation)
    assert result.labels.tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(result.models.numpy(), theta, rtol=1e-9)
    updates = np.stack([descend(np.zeros(4), x, y, 3, 0.05) for x, y in arrays])
    lengths = np.linalg.norm(updates, axis=1)
    expected = 1 - updates @ updates.T / lengths / lengths[:, None]
    assert result.history[-1].distances is not None
    np.testing.assert_allclose(result.history[-1].distances, expected, atol=1e-9)


@given(st.integers(1, 8), st.integers(0, 1000), st.floats(-1, 1))
def test_merged_clusters_are_not_similar_any_more(count: int, seed: int, tau: float) -> None:
    rows = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed)).double()
    rows = torch.nn.functional.normalize(rows)
    labels = merge_similar(rows, np.arange(count), tau)
    means = torch.stack([rows[labels == k].mean(0) for k in range(labels.max() + 1)])
    cosines = torch.nn.functional.cosine_similarity(means[:, None], means[None], dim=2)
    others = cosines[~torch.eye(len(means), dtype=torch.bool)]
    assert bool((others <= tau + 1e-9).all())
    if tau == 1:
        assert Partition(labels).num_clusters == count


def test_the_most_similar_pair_is_merged_first_and_represented_by_its_mean() -> None:
    """At 0, 40, 75 degrees: 40 and 75 are merged to 57.5, which is too far from 0 for cos 50."""
    angles = torch.deg2rad(torch.tensor([0.0, 40.0, 75.0]))
    rows = torch.stack([angles.cos(), angles.sin()], dim=1)
    assert merge_similar(rows, np.arange(3), float(np.cos(np.deg2rad(50)))).tolist() == [0, 1, 1]
    assert merge_similar(rows, np.arange(3), float(np.cos(np.deg2rad(58)))).tolist() == [0, 0, 0]


def test_rotations_are_found_without_their_number_also_if_few_clients_take_part() -> None:
    federation = digits()
    for participation in (1.0, 0.2):
        result = StoCFL(participation=participation, local=DIGITS).fit(federation)
        assert result.partition == federation.data.truth
    one = FedAvg(local=DIGITS).fit(federation).scores(federation).loss.mean()
    result = StoCFL(local=DIGITS).fit(federation)
    assert float(result.scores(federation).loss.mean()) < float(one)


def test_tau_decides_from_one_cluster_to_clients_alone() -> None:
    federation = digits(num_clients=8, rotations=2)
    local = LocalTraining(steps=5, batch_size=10, lr=0.5)
    for tau, count in ((-1.0, 1), (1.0, 8)):
        assert StoCFL(tau=tau, local=local).fit(federation).partition.num_clusters == count


def test_a_client_that_is_never_drawn_is_represented_in_the_end() -> None:
    federation = digits(num_clients=12, rotations=2)
    local = LocalTraining(steps=60, local_steps=60, batch_size=10, lr=0.5)
    result = StoCFL(participation=0.5, local=local).fit(federation)
    assert len(result.partition.unclustered) == 0
    assert result.partition == federation.data.truth
    assert len(result.history[-1].notes["merges"]) == 2


def test_without_a_pull_a_cluster_is_trained_as_if_alone() -> None:
    federation = digits(num_clients=8, rotations=2)
    local = LocalTraining(steps=10, local_steps=5, batch_size=None, lr=0.5)
    one = StoCFL(tau=-1.0, mu=0.0, local=local).fit(federation)
    expected = FedAvg(local=local).fit(federation)
    torch.testing.assert_close(one.models, expected.models)
