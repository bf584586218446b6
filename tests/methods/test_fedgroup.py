"""FedGroup: by hand, the similarities of updates, and newcomers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import ClientData, InputError, LocalTraining, Partition, Simulation, data
from srfca.methods import FedGroup
from srfca.methods.fedgroup import (
    cosines,
    decomposed_similarity,
    group,
    mean_cosine_differences,
    mixed_models,
    nearest_direction,
)
from srfca.models import linear, mlp
from tests import examples
from tests.methods.helpers import descend, digits

LOCAL = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.05)
DIGITS = LocalTraining(steps=60, local_steps=5, batch_size=10, lr=0.5)


def regressions(num_clients: int = 12, clusters: int = 3, **options: Any) -> Simulation:
    sizes = [20 + i % 3 for i in range(num_clients)]
    made = examples.regression(sizes, clusters=clusters)
    return Simulation(made, examples.doubled(linear(4, bias=False)), **options)


def test_by_hand() -> None:
    """Two groups: pretraining, the groups' first models, and two rounds of FedAvg in each."""
    federation = regressions(4, 2)
    samples = [federation._samples["train"].of(c) for c in range(4)]
    arrays = [(x.numpy(), y.numpy()) for x, y in samples]
    updates = [descend(np.zeros(4), *arrays[c], 3, 0.05) for c in range(4)]
    expected = []
    for members in ([0, 2], [1, 3]):
        model = (updates[members[0]] + updates[members[1]]) / 2
        n = [len(arrays[c][1]) for c in members]
        for _ in range(2):
            rows = [descend(model, *arrays[c], 2, 0.05) for c in members]
            model = (n[0] * rows[0] + n[1] * rows[1]) / sum(n)
        expected.append(model)
    result = FedGroup(k=2, pretrain_steps=3, local=LOCAL).fit(federation)
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
    computed = decomposed_similarity(torch.tensor(updates), k).numpy()
    np.testing.assert_allclose(np.abs(computed), np.abs(expected), atol=1e-6, err_msg="up to signs")


def test_groups_follow_directions_not_lengths() -> None:
    updates = torch.tensor([[1.0, 0.1], [9.0, 0.5], [-0.1, 1.0], [0.3, 8.0], [50.0, 0.0]])
    assert Partition(group(updates, 2, seed=0)) == Partition([0, 0, 1, 1, 0])
    assert nearest_direction(updates, torch.eye(2)).tolist() == [0, 0, 1, 1, 0]


def test_a_zero_update_has_no_direction() -> None:
    values = cosines(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([[0.0, 2.0]]))
    torch.testing.assert_close(values, torch.tensor([[0.0], [0.8]]))


def test_fewer_different_updates_than_groups() -> None:
    assert group(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), 3, seed=0).max() == 1


def test_groups_are_mixed_by_the_norms_of_their_models() -> None:
    models = torch.tensor([[3.0, 4.0], [0.0, 2.0], [5.0, 0.0]])
    first = (models[0] + 0.1 / 2 * models[1] + 0.1 / 5 * models[2]) / (1 + 0.1 / 2 + 0.1 / 5)
    torch.testing.assert_close(mixed_models(models, 0.1)[0], first)
    federation = regressions(4, 2)
    once = replace(LOCAL, steps=2)
    apart = FedGroup(k=2, pretrain_steps=3, local=once).fit(federation).models
    coupled = FedGroup(k=2, pretrain_steps=3, eta_g=0.5, local=once).fit(federation).models
    torch.testing.assert_close(coupled, mixed_models(apart, 0.5))
    assert not torch.allclose(coupled, apart)


@given(st.integers(2, 6), st.integers(0, 1000))
def test_madc_by_hand(n: int, seed: int) -> None:
    updates = np.random.default_rng(seed).normal(size=(n, 3))
    unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    similar = unit @ unit.T
    expected = np.zeros((n, n))
    for i, j in np.ndindex(n, n):
        others = [abs(similar[i, z] - similar[j, z]) for z in range(n) if z not in (i, j)]
        expected[i, j] = sum(others) / max(n - 2, 1) if i != j else 0.0
    np.testing.assert_allclose(mean_cosine_differences(torch.tensor(updates)), expected, atol=1e-9)


def test_madc_finds_the_groups_too() -> None:
    federation = digits()
    result = FedGroup(k=4, measure="madc", local=DIGITS).fit(federation, seed=0)
    assert result.partition == federation.data.truth


@pytest.mark.parametrize("pretrained", [0.5, 1.0])
def test_the_groups_of_rotated_digits_are_found(pretrained: float) -> None:
    """The paper's claim: groups with different data are found from short pretrainings."""
    federation = digits()
    result = FedGroup(k=4, pretrained=pretrained, local=DIGITS).fit(federation, seed=0)
    assert result.partition == federation.data.truth
    assert len(result.history[0].notes["founders"]) == 24 * pretrained


def test_buffers_do_not_count() -> None:
    made = examples.permuted_digits_of_unequal_scale()
    federation = Simulation(made, examples.batch_normed_mlp)
    local = LocalTraining(steps=20, local_steps=5, batch_size=10, lr=0.1)
    assert FedGroup(k=2, local=local).fit(federation).partition == made.truth


def test_a_single_step_does_not_show_the_groups() -> None:
    """A single small batch says little of a client's data."""
    federation = digits()
    hasty = FedGroup(k=4, pretrain_steps=1, local=replace(DIGITS, steps=1))
    assert federation.data.truth is not None
    assert hasty.fit(federation, seed=0).partition.ari(federation.data.truth) < 0.5


def test_newcomers_are_placed_by_a_pretraining_of_their_own() -> None:
    made = data.rotated_digits(num_clients=24)
    assert made.truth is not None
    first = ClientData.from_arrays(
        [made.train.of(c) for c in range(16)], truth=made.truth.labels[:16]
    )
    later = ClientData.from_arrays({f"new {c}": made.train.of(c) for c in range(16, 24)})
    method = FedGroup(k=4, local=DIGITS)
    result = method.fit(Simulation(first, mlp(64, 32, 10)), seed=0)
    placed = method.assign(result, Simulation(later, mlp(64, 32, 10)))
    assert Partition([*result.labels.tolist(), *placed.tolist()]) == made.truth


def test_the_seed_decides_and_blocks_do_not() -> None:
    method = FedGroup(
        k=3, pretrained=0.5, participation=0.5, local=replace(LOCAL, batch_size=5), pretrain_steps=4
    )
    result = method.fit(regressions(), seed=5)
    again = method.fit(regressions(block_size=1), seed=5)
    assert result.labels.tolist() == again.labels.tolist()
    torch.testing.assert_close(result.models, again.models)
    other = method.fit(regressions(), seed=6)
    assert not torch.allclose(result.client_models, other.client_models)


def test_pretraining_is_counted() -> None:
    method = FedGroup(k=3, pretrain_steps=3, local=LOCAL)
    spent = method.fit(regressions()).budget
    assert method.trainings == 1 + 3 / 4
    assert spent.local_steps == 12 * method.trainings * 4
    assert spent.models_up == 12 * (1 + 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0), ("pretrained", 0.0), ("pretrained", 1.1), ("pretrain_steps", 0), ("eta_g", -1.0),
        ("measure", "cosine"),
        ("participation", 0.0),
    ],
)  # fmt: skip
def test_wrong_values_are_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        FedGroup(**{name: value})


def test_more_groups_than_clients_are_refused() -> None:
    with pytest.raises(InputError, match="k=4 is more than the 3 clients"):
        FedGroup(k=4, pretrained=0.25, local=LOCAL).fit(regressions())
