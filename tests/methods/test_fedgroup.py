from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import ClientData, Partition, Simulation, Work, data
from srfca.errors import InputError
from srfca.methods import FedGroup
from srfca.methods.fedgroup import (
    along_the_others,
    cosines,
    decomposed_similarity,
    group,
    nearest_direction,
)
from srfca.models import linear, mlp
from tests import examples

WORK = Work(steps=4, local_steps=2, batch_size=None, lr=0.05)
DIGITS = Work(steps=60, local_steps=5, batch_size=10, lr=0.5)


def regressions(clients: int = 12, clusters: int = 3, **options: int) -> Simulation:
    sizes = [20 + i % 3 for i in range(clients)]
    made = examples.regression(sizes, clusters=clusters)
    return Simulation(made, examples.doubled(linear(4, bias=False)), **options)  # type: ignore[arg-type]


def test_by_hand() -> None:
    """Two groups: pretraining, the groups' first models, and two rounds of FedAvg in each."""
    clients = regressions(4, 2)
    samples = [clients._samples["train"].of(c) for c in range(4)]
    arrays = [(x.numpy(), y.numpy()) for x, y in samples]

    def steps(w: np.ndarray, client: int, count: int) -> np.ndarray:
        x, y = arrays[client]
        for _ in range(count):
            w = w - 0.05 * 2 / len(y) * x.T @ (x @ w - y)
        return w

    updates = [steps(np.zeros(4), c, 3) for c in range(4)]
    expected = []
    for members in ([0, 2], [1, 3]):
        model = (updates[members[0]] + updates[members[1]]) / 2
        n = [len(arrays[c][1]) for c in members]
        for _ in range(2):
            rows = [steps(model, c, 2) for c in members]
            model = (n[0] * rows[0] + n[1] * rows[1]) / sum(n)
        expected.append(model)
    result = FedGroup(k=2, pretrain_steps=3, work=WORK).fit(clients)
    assert result.labels.tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(result.models.numpy(), np.stack(expected), rtol=1e-9)


@given(st.integers(2, 6), st.integers(2, 6), st.integers(1, 3), st.integers(0, 1000))
def test_similarities_are_cosines_with_the_main_directions(
    n: int, d: int, k: int, seed: int
) -> None:
    updates = np.random.default_rng(seed).normal(size=(n, d))
    values, vectors = np.linalg.eigh(updates.T @ updates)
    main = vectors[:, np.argsort(values)[::-1][: min(k, n)]].T
    expected = [
        [u @ v / (np.linalg.norm(u) * np.linalg.norm(v)) for v in main[:k]] for u in updates
    ]
    found = decomposed_similarity(torch.tensor(updates), k).numpy()
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-6, err_msg="up to signs")


def test_groups_follow_directions_not_lengths() -> None:
    updates = torch.tensor([[1.0, 0.1], [9.0, 0.5], [-0.1, 1.0], [0.3, 8.0], [50.0, 0.0]])
    assert Partition(group(updates, 2, seed=0)) == Partition([0, 0, 1, 1, 0])
    assert nearest_direction(updates, torch.eye(2)).tolist() == [0, 0, 1, 1, 0]


def test_a_zero_update_has_no_direction() -> None:
    found = cosines(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([[0.0, 2.0]]))
    torch.testing.assert_close(found, torch.tensor([[0.0], [0.8]]))


def test_fewer_different_updates_than_groups() -> None:
    assert group(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), 3, seed=0).max() == 1


def test_groups_move_along_the_others() -> None:
    models = torch.tensor([[3.0, 4.0], [0.0, 2.0], [5.0, 0.0]])
    expected = torch.tensor([[1.0, 1.0], [1.6, 0.8], [0.6, 1.8]])
    torch.testing.assert_close(along_the_others(models), expected)
    clients = regressions(4, 2)
    once = replace(WORK, steps=2)
    apart = FedGroup(k=2, pretrain_steps=3, work=once).fit(clients).models
    shared = FedGroup(k=2, pretrain_steps=3, eta_g=0.5, work=once).fit(clients).models
    moved = 0.5 * apart.flip(0) / apart.flip(0).norm(dim=1, keepdim=True)
    torch.testing.assert_close(shared, apart + moved)


@pytest.mark.parametrize("pretrained", [0.5, 1.0])
def test_finds_the_groups_of_turned_digits(pretrained: float) -> None:
    """The paper's claim: groups with different data are found from short pretrainings."""
    clients = Simulation(data.rotated_digits(num_clients=24), mlp(64, 32, 10))
    result = FedGroup(k=4, pretrained=pretrained, work=DIGITS).fit(clients, seed=0)
    assert result.partition == clients.data.truth
    founders = result.history[0].notes["founders"]
    assert len(founders) == 24 * pretrained


def test_buffers_do_not_count() -> None:
    made = examples.permuted_digits_of_unequal_scale()
    clients = Simulation(made, examples.batch_normed_mlp)
    work = Work(steps=20, local_steps=5, batch_size=10, lr=0.1)
    assert FedGroup(k=2, work=work).fit(clients).partition == made.truth


def test_a_single_step_does_not_show_the_groups() -> None:
    """A single small batch says little of a client's data."""
    clients = Simulation(data.rotated_digits(num_clients=24), mlp(64, 32, 10))
    hasty = FedGroup(k=4, pretrain_steps=1, work=replace(DIGITS, steps=1))
    assert clients.data.truth is not None
    assert hasty.fit(clients, seed=0).partition.ari(clients.data.truth) < 0.5


def test_newcomers_are_placed_by_their_own_pretraining() -> None:
    made = data.rotated_digits(num_clients=24)
    old, new = range(16), range(16, 24)
    assert made.truth is not None
    first = ClientData.from_arrays([made.train.of(c) for c in old], truth=made.truth.labels[:16])
    later = ClientData.from_arrays({f"new {c}": made.train.of(c) for c in new})
    method = FedGroup(k=4, work=DIGITS)
    result = method.fit(Simulation(first, mlp(64, 32, 10)), seed=0)
    placed = method.assign(result, Simulation(later, mlp(64, 32, 10)))
    everybody = Partition([*result.labels.tolist(), *placed.tolist()])
    assert everybody == made.truth


def test_the_seed_decides_and_blocks_do_not() -> None:
    method = FedGroup(
        k=3, pretrained=0.5, participation=0.5, work=replace(WORK, batch_size=5), pretrain_steps=4
    )
    found = method.fit(regressions(), seed=5)
    again = method.fit(regressions(block_size=1), seed=5)
    assert found.labels.tolist() == again.labels.tolist()
    torch.testing.assert_close(found.models, again.models)
    other = method.fit(regressions(), seed=6)
    assert not torch.allclose(found.client_models, other.client_models)


def test_pretraining_is_paid_for() -> None:
    method = FedGroup(k=3, pretrain_steps=3, work=WORK)
    spent = method.fit(regressions()).budget
    assert method.trainings == 1 + 3 / 4
    assert spent.local_steps == 12 * method.trainings * 4
    assert spent.models_up == 12 * (1 + 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0), ("pretrained", 0.0), ("pretrained", 1.1), ("pretrain_steps", 0), ("eta_g", -1.0),
        ("participation", 0.0),
    ],
)  # fmt: skip
def test_bad_parameters_are_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"{name} must"):
        FedGroup(**{name: value})  # type: ignore[arg-type]


def test_more_groups_than_clients() -> None:
    with pytest.raises(InputError, match="k=7 is more than the 6 clients"):
        FedGroup(k=7, pretrained=0.5, work=WORK).fit(regressions())
