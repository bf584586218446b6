"""FLUX: descriptors by hand, density clustering, and its paper's claim in a small form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from srfca import ClientData, InputError, LocalTraining, Simulation, data
from srfca.federation.moments import GroupMoments
from srfca.methods import FLUX, Oracle
from srfca.methods.flux import (
    LINEAR,
    density_clusters,
    descriptors,
    elbow,
    principal_components,
    scaled_descriptors,
)
from srfca.models import linear, mlp
from tests import examples
from tests.methods.helpers import descend, digits

LOCAL = LocalTraining(steps=20, batch_size=10, lr=0.05)


def test_descriptors_by_hand() -> None:
    """Two clients, an encoder of one output; the second client lacks class 1."""
    outputs = GroupMoments(
        torch.tensor([[[1.0, 3.0]], [[2.0, 0.0]]]),
        torch.tensor([[[[2.0], [6.0]]], [[[9.0], [0.0]]]]),
        torch.zeros(2, 1, 1, 1),
    )
    losses = GroupMoments(
        torch.tensor([[[2.0, 1.0]], [[3.0, 0.0]]]),
        torch.tensor([[[[1.0], [4.0]]], [[[5.0], [0.0]]]]),
        torch.zeros(2, 1, 1, 1),
    )
    means, first_class = np.array([5.0, 9.0]), np.array([1.0, 5.0])
    expected = np.stack([(v - v.mean()) / v.std() for v in (means, first_class)], axis=1)
    result = descriptors(outputs, losses)
    np.testing.assert_allclose(result[:, :2], expected)
    assert result[:, 2].tolist() == [0.0, 0.0]


def test_a_step_by_hand() -> None:
    """Three clients have twelve times the targets of the others: two clusters, and FedAvg in each.

    The only encoder is w0 = 0, whose losses tell the clusters apart.
    """
    made = examples.regression([20, 21, 22, 23, 24, 25])
    scales = [1.0, 12.0] * 3
    shards = [
        (x, scale * y) for (x, y), scale in zip(map(made.train.of, range(6)), scales, strict=True)
    ]
    made = ClientData.from_arrays(shards, truth=np.arange(6) % 2)
    federation = Simulation(made, examples.doubled(linear(4, bias=False)))
    step = LocalTraining(steps=2, local_steps=2, batch_size=None, lr=0.05)
    result = FLUX(encoders=1, eps=1.0, min_samples=2, local=step).fit(federation)
    assert result.labels.tolist() == [0, 1, 0, 1, 0, 1]
    samples = [federation._samples["train"].of(c) for c in range(6)]
    arrays = [(x.numpy(), y.numpy()) for x, y in samples]
    for cluster in range(2):
        members = range(cluster, 6, 2)
        n = np.array([len(arrays[c][1]) for c in members])
        rows = np.stack([descend(np.zeros(4), *arrays[c], 2, 0.05) for c in members])
        np.testing.assert_allclose(result.models[cluster].numpy(), n @ rows / n.sum(), rtol=1e-9)


def test_clients_in_no_dense_region_join_the_nearest_cluster() -> None:
    points = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [3.0]])
    labels, num_noise = density_clusters(points, 0.3, 3)
    assert labels.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert num_noise == 1
    assert density_clusters(points, 0.01, 3)[0].tolist() == [0] * 7


def test_descriptors_by_a_trained_model_by_hand() -> None:
    """One output, two classes; the second client lacks class 1, and counts as -1 there."""
    outputs = GroupMoments(
        torch.tensor([[[1.0, 3.0]], [[2.0, 0.0]]]),
        torch.tensor([[[[2.0], [6.0]]], [[[9.0], [0.0]]]]),
        torch.tensor([[[[4.0]]], [[[2.0]]]]),
    )
    losses = GroupMoments(
        torch.tensor([[[2.0, 1.0]] * 2, [[3.0, 0.0]] * 2]),
        torch.tensor(
            [[[3 / LINEAR, 12 / LINEAR], [0.5, 1.0]], [[15 / LINEAR, 0.0], [2.0, 0.0]]]
        ).unsqueeze(3),
        torch.zeros(2, 2, 1, 1),
    )
    means, deviations = np.array([[5.0], [9.0]]), np.sqrt([[(4 + 9 + 3) / 4], [1.0]])
    kinds = [means, deviations, np.array([[1, 4], [5, -1.0]]), np.array([[0.5, 1], [2, -1.0]])]
    expected = [(kind - kind.min()) / (kind.max() - kind.min()) for kind in kinds]
    np.testing.assert_allclose(
        scaled_descriptors(outputs, losses), np.concatenate(expected, axis=1), rtol=1e-5
    )


def test_the_elbow_is_where_distances_begin_to_grow() -> None:
    """Nearest neighbors are at 1/8, 1/8, 1/4, 1/4, 3/8 and 4."""
    points = np.array([[0.0], [0.125], [2.0], [2.25], [2.625], [6.625]])
    assert elbow(points) == 0.375
    labels, num_noise = density_clusters(points, elbow(points), 2, "alone")
    assert (labels.tolist(), num_noise) == ([0, 0, 1, 1, 1, 2], 1)
    assert elbow(np.zeros((3, 1))) > 0
    assert elbow(np.zeros((1, 1))) > 0


def test_the_trained_model_is_that_of_fedavg_until_accuracy_hardly_grows() -> None:
    """With an unreachable gain three rounds, with one that is always reached 80 % of them."""
    federation = digits(seed=1, num_clients=6, rotations=1)
    for min_gain, rounds in ((2.0, 3), (0.0, 8)):
        local = LocalTraining(steps=10, local_steps=1, batch_size=None, lr=0.001)
        method = FLUX(describe_with="trained", min_gain=min_gain, local=local)
        stages = method.fit(federation).history
        assert [stage.name for stage in stages] == ["GLOBAL", "DESCRIPTORS", "FEDAVG"]
        assert [stage.budget.local_steps for stage in stages] == [6 * rounds, 0, 6 * (10 - rounds)]


def test_the_trained_model_finds_clients_whose_labels_are_permuted() -> None:
    alike = data.rotated_digits(num_clients=12, rotations=1)
    shards = [alike.train.of(c) for c in range(12)]
    shards = [(x, (y + 5 * (client % 2)) % 10) for client, (x, y) in enumerate(shards)]
    permuted = ClientData.from_arrays(shards, truth=np.arange(12) % 2)
    federation = Simulation(permuted, mlp(64, 32, 10), seed=0)
    local = LocalTraining(steps=60, local_steps=10, batch_size=10, lr=0.3)
    method = FLUX(describe_with="trained", k=2, local=local)
    assert method.fit(federation).partition == permuted.truth


def test_a_known_number_of_clusters_is_that_of_k_means() -> None:
    federation = digits(seed=1, num_clients=20, rotations=2)
    assert FLUX(local=LOCAL, k=2).fit(federation).partition == federation.data.truth
    assert FLUX(local=LOCAL, k=5).fit(federation).partition.num_clusters == 5


def test_components_keep_distances() -> None:
    values = np.random.default_rng(0).normal(size=(5, 8))
    kept = principal_components(values, 4)
    assert kept.shape == (5, 4)
    np.testing.assert_allclose(
        np.linalg.norm(kept[0] - kept[3]), np.linalg.norm(values[0] - values[3])
    )


@pytest.mark.parametrize("rotations", [1, 4])
def test_rotations_are_found_without_their_number(rotations: int) -> None:
    federation = digits(seed=1, num_clients=40, rotations=rotations)
    result = FLUX(local=LOCAL).fit(federation)
    assert result.partition == federation.data.truth
    oracle = Oracle(truth=federation.data.truth, local=LOCAL).fit(federation)
    torch.testing.assert_close(result.models, oracle.models)


def test_permuted_labels_are_found_too() -> None:
    """Inputs are alike; the losses by class differ."""
    alike = data.rotated_digits(num_clients=40, rotations=1)
    permuted = ClientData.from_arrays(
        [
            (x, (y + 5 * (client % 2)) % 10)
            for client, (x, y) in enumerate(alike.train.of(c) for c in range(40))
        ],
        truth=np.arange(40) % 2,
    )
    result = FLUX(local=LOCAL).fit(Simulation(permuted, mlp(64, 32, 10), seed=0))
    assert result.partition == permuted.truth


def test_newcomers_without_labels_are_placed() -> None:
    federation = Simulation(data.rotated_digits(num_clients=16), mlp(64, 32, 10), validation=0.3)
    local = LocalTraining(steps=100, local_steps=5, batch_size=10, lr=0.5)
    result = FLUX(local=local).fit(federation).with_input_statistics(federation)
    newcomers = Simulation(data.rotated_digits(num_clients=4, seed=1), mlp(64, 32, 10))
    assert result.partition == federation.data.truth
    assert result.assign(newcomers, labels=False).labels.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "option", [{"eps": 0.0}, {"eps": "wide"}, {"encoders": 0}, {"components": 0}]
)
def test_wrong_values_are_named(option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(option))):
        FLUX(**option)


def test_a_given_start_is_no_error() -> None:
    federation = Simulation(examples.regression([20] * 6, clusters=2), linear(4))
    assert FLUX(local=LOCAL).fit(federation).models.isfinite().all()
