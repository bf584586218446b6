from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import subspace_angles

from srfca import ClientData, InputError, Partition, Simulation, Work, data
from srfca.federation.counted import Counted
from srfca.methods import PACFL, Oracle
from srfca.methods.pacfl import principal_angles
from srfca.models import linear, mlp
from tests import examples
from tests.loop_federation import LoopFederation

WORK = Work(steps=20, batch_size=10, lr=0.5)


def projections(bases: torch.Tensor) -> torch.Tensor:
    """What does not depend on the signs, nor on the basis: ``[c, f, f]``."""
    return bases @ bases.transpose(1, 2)


@pytest.mark.parametrize("sizes", [[30, 9, 14], [5, 7, 40]])
@pytest.mark.parametrize("shape", [(6,), (1, 4, 5)])
def test_subspaces_agree_with_the_loop(sizes: list[int], shape: tuple[int, ...]) -> None:
    clients = examples.classification(sizes, shape)
    width = int(np.prod(shape))
    model = examples.doubled(mlp(width, 3))
    found = Simulation(clients, model).subspaces([2, 0], 3)
    expected = LoopFederation(clients, model).subspaces([2, 0], 3)
    assert found.shape == (2, width, 3)
    torch.testing.assert_close(found.transpose(1, 2) @ found, torch.eye(3).double().expand(2, 3, 3))
    for rank in (1, 2, 3):
        torch.testing.assert_close(
            projections(found[..., :rank]), projections(expected[..., :rank])
        )


def test_subspaces_see_training_data_alone() -> None:
    x = torch.zeros(10, 3)
    x[torch.arange(10), torch.arange(10) % 2] = 1 + torch.arange(10.0)
    clients = ClientData.from_arrays([(x, x[:, 0])], [(torch.eye(3), torch.ones(3))])
    basis = Simulation(clients, linear(3)).subspaces([0], 2)[0]
    assert basis[2].tolist() == [0, 0], "the third direction is in the test data only"


def test_subspaces_cost_bytes_alone() -> None:
    counted = Counted(Simulation(examples.classification([20] * 5), mlp(6, 3)))
    counted.subspaces([0, 3], 2)
    spent = counted.spent
    assert spent.bytes_up == 2 * 6 * 2 * 4
    assert spent.models_up == spent.models_down == spent.bytes_down == spent.local_steps == 0


def test_subspaces_that_cannot_be_are_refused() -> None:
    text = Simulation(examples.characters([20] * 4), examples.Recurrent)
    with pytest.raises(InputError, match="integers"):
        PACFL(work=WORK).fit(text)
    few = Simulation(examples.classification([20, 5]), mlp(6, 3))
    with pytest.raises(InputError, match="rank must be from 1 to 4"):
        few.subspaces([0, 1], 5)


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_angles_are_those_of_scipy_whatever_the_basis(seed: int, rank: int) -> None:
    draws = np.random.default_rng(seed)
    bases = np.linalg.qr(draws.normal(size=(3, 5, rank))).Q
    turns = np.linalg.qr(draws.normal(size=(3, rank, rank))).Q
    found = principal_angles(torch.tensor(bases))
    turned = principal_angles(torch.tensor(bases @ turns))
    np.testing.assert_allclose(turned, found, atol=1e-5)
    for a, b in product(range(3), repeat=2):
        expected = np.sort(np.rad2deg(subspace_angles(bases[a], bases[b])))
        np.testing.assert_allclose(found[a, b], expected, atol=1e-5)
    assert (found[[0, 1, 2], [0, 1, 2]] == 0).all()


def planes(spread: float = 0.0) -> ClientData:
    """Clients 0, 2, ... in the plane of the axes 0 and 1, the others in that of 0 and 2 turned."""
    draws = np.random.default_rng(0)
    turned = np.array([0, np.cos(np.pi / 6), np.sin(np.pi / 6), 0])
    train = []
    for client in range(8):
        other = np.eye(4)[1] if client % 2 == 0 else turned
        weights = draws.normal(size=(30, 2)) * [2.0, 1.0]
        x = weights @ np.stack([np.eye(4)[0], other]) + spread * draws.normal(size=(30, 4))
        train.append((torch.tensor(x), torch.tensor(x[:, 0])))
    return ClientData.from_arrays(train, truth=np.arange(8) % 2)


def test_thresholds_are_degrees() -> None:
    clients = Simulation(planes(), lambda: linear(4)().double())
    for angle, threshold, count in (
        ("sum", 29.9, 2),
        ("sum", 30.1, 1),
        ("smallest", 0.1, 1),
    ):
        result = PACFL(rank=2, angle=angle, threshold=threshold, work=WORK).fit(clients)
        assert result.partition.num_clusters == count, "the planes share an axis, and are 30 apart"
    again = PACFL(rank=2, threshold=29.9, work=WORK).fit(clients)
    assert again.partition == clients.data.truth
    told = Oracle(truth=clients.data.truth, work=WORK).fit(clients)
    assert torch.equal(again.models, told.models)
    np.testing.assert_allclose(again.history[0].distances[0, 1], 30, atol=1e-4)  # type: ignore[index]


def test_auto_finds_the_planes() -> None:
    clients = Simulation(planes(0.05), lambda: linear(4)().double())
    assert PACFL(rank=2, work=WORK).fit(clients).partition == clients.data.truth


@pytest.mark.parametrize(
    "options", [{}, {"k": 4, "rank": 3}, {"k": 4, "angle": "smallest", "linkage": "complete"}]
)
def test_rotations_are_seen(options: dict[str, Any]) -> None:
    clients = Simulation(data.rotated_digits(num_clients=20), mlp(64, 16, 10))
    assert PACFL(**options, work=WORK).fit(clients).partition == clients.data.truth


def test_one_group_is_left_whole() -> None:
    clients = Simulation(data.rotated_digits(num_clients=40, rotations=1), mlp(64, 16, 10))
    assert PACFL(work=WORK).fit(clients).partition.num_clusters == 1


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
    before, after = (Simulation(clients, model, seed=0) for clients in (alike, permuted))
    assert torch.equal(before.subspaces(range(40), 5), after.subspaces(range(40), 5))
    found = PACFL(work=WORK).fit(after).partition
    assert found == PACFL(work=WORK).fit(before).partition == Partition([0] * 40)


def test_blocks_do_not_matter() -> None:
    results = [
        PACFL(k=3, rank=2, participation=0.5, work=WORK).fit(
            Simulation(planes(0.05), lambda: linear(4)().double(), block_size=size), seed=3
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
        {"threshold": -1.0},
        {"k": 0},
        {"linkage": "ward"},
        {"participation": 0.0},
    ],
)
def test_bad_parameters_are_named(option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(option))):
        PACFL(**option)


def test_more_clusters_than_clients_are_refused() -> None:
    with pytest.raises(InputError, match="k=5 is more than the 4 clients"):
        PACFL(k=5).fit(Simulation(examples.regression([20] * 4), linear(4)))
