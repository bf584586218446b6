"""Top-down clustering: rounds by hand, the tree, and what is not cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import ClientData, FedAvg, InputError, LocalTraining, Partition, Simulation
from srfca.methods import TopDown
from srfca.models import linear
from tests import examples
from tests.methods.helpers import Array, DropByNumber, digits

RATE = 0.1
DIGITS = LocalTraining(steps=100, batch_size=10, lr=0.5)


def lines(slopes: Array, samples: int = 20) -> ClientData:
    """Return a regression of each client, by its slopes ``[m, d]``."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(len(slopes), samples, slopes.shape[1]))
    y = np.einsum("cnd,cd->cn", x, slopes)
    return ClientData.from_arrays(
        [(torch.tensor(a), torch.tensor(b)) for a, b in zip(x, y, strict=True)]
    )


def test_three_rounds_by_hand() -> None:
    """FedAvg, a round of cuts, and FedAvg in the halves: each continues from its own updates."""
    slopes = np.array([3.0, -3.0, 3.5, -2.0, 2.5, -2.5])[:, None]
    made = lines(slopes)
    x = np.stack([made.train.of(c)[0].numpy()[:, 0] for c in range(6)])
    y = np.stack([made.train.of(c)[1].numpy() for c in range(6)])
    local = LocalTraining(steps=3, local_steps=1, batch_size=None, lr=RATE)
    method = TopDown(rounds_between=1, weighted=False, local=local)
    result = method.fit(Simulation(made, examples.doubled(linear(1, bias=False)), validation=0))

    def stepped(w: Array) -> Array:
        return np.asarray(w - RATE * (2 * (w[:, None] * x - y) * x).mean(1))

    together = stepped(np.zeros(6)).mean()
    rows = stepped(np.full(6, together))
    means = np.array([rows[::2].mean(), rows[1::2].mean()])
    last = stepped(np.tile(means, 3))
    assert result.labels.tolist() == [0, 1] * 3
    assert result.models.flatten().tolist() == pytest.approx(
        [last[::2].mean(), last[1::2].mean()], rel=1e-10
    )
    assert result.history[-1].notes["parents"] == [[0, 0]]


def test_the_tree_is_found_from_the_root_to_the_leaves() -> None:
    """Two groups of two groups: the first cut is between those that differ most."""
    centers = np.array([[4.0, 1.0], [4.0, -1.0], [-4.0, 1.0], [-4.0, -1.0]])
    made = lines(np.repeat(centers, 4, axis=0))
    local = LocalTraining(steps=20, local_steps=1, batch_size=None, lr=RATE)
    method = TopDown(rounds_between=4, local=local)
    result = method.fit(Simulation(made, examples.doubled(linear(2, bias=False)), validation=0))
    levels = [stage for stage in result.history if stage.name.startswith("LEVEL")]
    assert Partition(levels[0].labels) == Partition(np.repeat([0, 1], 8))
    assert Partition(levels[1].labels) == Partition(np.repeat([0, 1, 2, 3], 4))
    assert [level.notes["parents"] for level in levels[:2]] == [[0, 0], [0, 0, 1, 1]]
    assert result.partition == Partition(np.repeat([0, 1, 2, 3], 4))


def test_the_rotations_of_digits_are_found() -> None:
    federation = digits(num_clients=24, rotations=4)
    assert TopDown(local=DIGITS).fit(federation).partition == federation.data.truth


def test_alike_clients_stay_together_and_it_is_fedavg() -> None:
    federation = digits(num_clients=12, rotations=1)
    result, fedavg = TopDown(local=DIGITS).fit(federation), FedAvg(local=DIGITS).fit(federation)
    assert result.labels.tolist() == [0] * 12
    assert result.budget.local_steps == fedavg.budget.local_steps


def test_max_levels_limits_the_cuts() -> None:
    federation = digits(num_clients=24, rotations=4)
    result = TopDown(local=DIGITS, max_levels=1).fit(federation)
    assert result.partition.num_clusters == 2


def test_a_client_that_is_missing_when_its_group_is_cut_is_placed_later() -> None:
    slopes = np.tile([[3.0], [-3.0]], (5, 1))
    model = examples.doubled(linear(1, bias=False))
    local = LocalTraining(steps=6, local_steps=1, batch_size=None, lr=RATE)
    federation = DropByNumber(Simulation(lines(slopes), model), {1: [9]})
    result = TopDown(rounds_between=1, max_levels=1, local=local).fit(federation)
    assert federation.lost == {9}
    assert result.labels.tolist() == [0, 1] * 5
    assert result.history[-1].name == "PLACE"


def test_ward_needs_l2() -> None:
    with pytest.raises(InputError, match="linkage 'ward' needs the metric 'l2', not 'cosine'"):
        TopDown(linkage="ward")
