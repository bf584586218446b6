"""PACFL: subspaces against the reference, angles against scipy, and the clusters they show."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import subspace_angles
from sklearn.datasets import load_digits
from torch import Tensor

from srfca import ClientData, InputError, LocalTraining, Partition, Simulation, data
from srfca.federation import Counting, Federation, Subspaces
from srfca.methods import PACFL, Oracle
from srfca.methods.pacfl import principal_angles, smallest_vector_angles
from srfca.models import linear, mlp
from srfca.testing import ReferenceFederation
from tests import examples

LOCAL = LocalTraining(steps=20, batch_size=10, lr=0.05)


def subspaces(federation: Federation, clients: list[int] | range, rank: int) -> Tensor:
    return federation.ask(Subspaces(np.asarray(clients), rank)).values


def projections(bases: Tensor) -> Tensor:
    """Return what depends neither on signs nor on the basis: ``[c, f, f]``."""
    return bases @ bases.transpose(1, 2)


@pytest.mark.parametrize("sizes", [[30, 9, 14], [5, 7, 40]])
@pytest.mark.parametrize("shape", [(6,), (1, 4, 5)])
def test_subspaces_are_those_of_the_reference(sizes: list[int], shape: tuple[int, ...]) -> None:
    made = examples.classification(sizes, shape)
    width = int(np.prod(shape))
    model = examples.doubled(mlp(width, 3))
    bases = subspaces(Simulation(made, model), [2, 0], 3)
    expected = subspaces(ReferenceFederation(made, model), [2, 0], 3)
    assert bases.shape == (2, width, 3)
    torch.testing.assert_close(bases.transpose(1, 2) @ bases, torch.eye(3).double().expand(2, 3, 3))
    for rank in (1, 2, 3):
        torch.testing.assert_close(
            projections(bases[..., :rank]), projections(expected[..., :rank])
        )


def test_subspaces_of_classes_are_those_of_the_reference() -> None:
    """Class after class; a class without samples has zeros."""
    made = examples.classification([30, 9, 14], (6,))
    model = examples.doubled(mlp(6, 3))
    request = Subspaces(np.array([2, 0]), 2, 4)
    bases = Simulation(made, model).ask(request).values
    expected = ReferenceFederation(made, model).ask(request).values
    assert bases.shape == (2, 6, 8)
    torch.testing.assert_close(bases.abs(), expected.abs())
    assert bool((bases[..., 6:] == 0).all()), "there are three classes"
    assert float(bases[..., 0].norm(dim=1).min()) == pytest.approx(1)


def test_classes_are_compared_by_the_smallest_angle_of_any_vectors() -> None:
    half = 0.5**0.5
    clients = torch.tensor([[[1, 0], [0, 0], [0, 1.0]], [[half, 0], [half, 0], [0, 0]]])
    angles = smallest_vector_angles(torch.cat([clients, -clients[:1]]))
    np.testing.assert_allclose(angles, [[0, 45, 0], [45, 0, 45], [0, 45, 0]], atol=1e-5)


def test_groups_by_classes_are_found_by_subspaces_of_classes() -> None:
    """Clients that have other classes have other vectors, and no label is sent."""
    x, y = (torch.tensor(value) for value in load_digits(return_X_y=True))
    x = x.float() / 16
    halves = [torch.isin(y, torch.arange(5)), ~torch.isin(y, torch.arange(5))]
    shards = [(x[half][i::5], y[half][i::5]) for half in halves for i in range(5)]
    made = ClientData.from_arrays(shards, truth=np.arange(10) // 5)
    method = PACFL(per_class=True, angle="smallest", rank=3, k=2, local=LOCAL)
    assert method.fit(Simulation(made, mlp(64, 16, 10))).partition == made.truth


def test_subspaces_are_of_training_data_alone() -> None:
    x = torch.zeros(10, 3)
    x[torch.arange(10), torch.arange(10) % 2] = 1 + torch.arange(10.0)
    made = ClientData.from_arrays([(x, x[:, 0])], [(torch.eye(3), torch.ones(3))])
    basis = subspaces(Simulation(made, linear(3)), [0], 2)[0]
    assert basis[2].tolist() == [0, 0], "the third direction is in the test data only"


def test_subspaces_cost_bytes_alone() -> None:
    counting = Counting(Simulation(examples.classification([20] * 5), mlp(6, 3)))
    subspaces(counting, [0, 3], 2)
    spent = counting.spent
    assert spent.bytes_up == 2 * 6 * 2 * 4
    assert spent.models_up == spent.models_down == spent.bytes_down == spent.local_steps == 0


def test_impossible_subspaces_are_refused() -> None:
    text = Simulation(examples.characters([20] * 4), examples.Recurrent)
    with pytest.raises(InputError, match="integers"):
        PACFL(local=LOCAL).fit(text)
    few = Simulation(examples.classification([20, 5]), mlp(6, 3))
    with pytest.raises(InputError, match="rank must be from 1 to 4"):
        subspaces(few, [0, 1], 5)


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_angles_are_those_of_scipy_in_any_basis(seed: int, rank: int) -> None:
    rng = np.random.default_rng(seed)
    bases = np.linalg.qr(rng.normal(size=(3, 5, rank))).Q
    rotations = np.linalg.qr(rng.normal(size=(3, rank, rank))).Q
    angles = principal_angles(torch.tensor(bases))
    rotated = principal_angles(torch.tensor(bases @ rotations))
    np.testing.assert_allclose(rotated, angles, atol=1e-5)
    for a, b in product(range(3), repeat=2):
        expected = np.sort(np.rad2deg(subspace_angles(bases[a], bases[b])))
        np.testing.assert_allclose(angles[a, b], expected, atol=1e-5)
    assert (angles[[0, 1, 2], [0, 1, 2]] == 0).all()


def planes(spread: float = 0.0) -> ClientData:
    """Return even clients in the plane of axes 0 and 1, odd ones in that plane, tilted by 30."""
    rng = np.random.default_rng(0)
    tilted = np.array([0, np.cos(np.pi / 6), np.sin(np.pi / 6), 0])
    train = []
    for client in range(8):
        other = np.eye(4)[1] if client % 2 == 0 else tilted
        weights = rng.normal(size=(30, 2)) * [2.0, 1.0]
        x = weights @ np.stack([np.eye(4)[0], other]) + spread * rng.normal(size=(30, 4))
        train.append((torch.tensor(x), torch.tensor(x[:, 0])))
    return ClientData.from_arrays(train, truth=np.arange(8) % 2)


def test_thresholds_are_degrees() -> None:
    federation = Simulation(planes(), examples.doubled(linear(4)))
    cases: list[tuple[Literal["sum", "smallest"], float, int]] = [
        ("sum", 29.9, 2),
        ("sum", 30.1, 1),
        ("smallest", 0.1, 1),
    ]
    for angle, threshold, count in cases:
        result = PACFL(rank=2, angle=angle, threshold=threshold, local=LOCAL).fit(federation)
        assert result.partition.num_clusters == count, "the planes share an axis, and are 30 apart"
    result = PACFL(rank=2, threshold=29.9, local=LOCAL).fit(federation)
    assert result.partition == federation.data.truth
    oracle = Oracle(truth=federation.data.truth, local=LOCAL).fit(federation)
    assert torch.equal(result.models, oracle.models)
    np.testing.assert_allclose(result.history[0].distances[0, 1], 30, atol=1e-4)


def test_auto_finds_the_planes() -> None:
    federation = Simulation(planes(0.05), examples.doubled(linear(4)))
    assert PACFL(rank=2, local=LOCAL).fit(federation).partition == federation.data.truth


@pytest.mark.parametrize(
    "options", [{}, {"k": 4, "rank": 3}, {"k": 4, "angle": "smallest", "linkage": "complete"}]
)
def test_rotations_are_found(options: dict[str, Any]) -> None:
    federation = Simulation(data.rotated_digits(num_clients=20), mlp(64, 16, 10))
    assert PACFL(**options, local=LOCAL).fit(federation).partition == federation.data.truth


def test_one_group_is_one_cluster() -> None:
    federation = Simulation(data.rotated_digits(num_clients=40, rotations=1), mlp(64, 16, 10))
    assert PACFL(local=LOCAL).fit(federation).partition.num_clusters == 1


def test_permuted_labels_are_invisible() -> None:
    alike = data.rotated_digits(num_clients=40, rotations=1)
    permuted = ClientData.from_arrays(
        [
            (x, (y + 3 * (client % 2)) % 10)
            for client, (x, y) in enumerate(alike.train.of(c) for c in range(40))
        ],
        truth=np.arange(40) % 2,
    )
    model = mlp(64, 16, 10)
    before, after = (Simulation(made, model, seed=0) for made in (alike, permuted))
    assert torch.equal(subspaces(before, range(40), 5), subspaces(after, range(40), 5))
    partition = PACFL(local=LOCAL).fit(after).partition
    assert partition == PACFL(local=LOCAL).fit(before).partition == Partition([0] * 40)


def test_blocks_do_not_matter() -> None:
    results = [
        PACFL(k=3, rank=2, participation=0.5, local=LOCAL).fit(
            Simulation(planes(0.05), examples.doubled(linear(4)), block_size=size), seed=3
        )
        for size in (None, 3)
    ]
    assert results[0].partition == results[1].partition
    torch.testing.assert_close(results[0].models, results[1].models)
    assert results[0].partition.num_clusters == 3


@pytest.mark.parametrize(
    "option",
    [
        {"rank": 0},
        {"angle": "largest"},
        {"per_class": True},
        {"threshold": -1.0},
        {"k": 0},
        {"linkage": "ward"},
        {"participation": 0.0},
    ],
)
def test_wrong_values_are_named(option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(option))):
        PACFL(**option)


def test_more_clusters_than_clients_are_refused() -> None:
    with pytest.raises(InputError, match="k=5 is more than the 4 clients"):
        PACFL(k=5).fit(Simulation(examples.regression([20] * 4), linear(4)))
