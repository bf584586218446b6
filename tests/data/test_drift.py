from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import ClientData, data
from srfca.data.drift import (
    DriftKind,
    concept_transforms,
    drift_phases,
    drift_schedule,
    split_samples,
)
from srfca.errors import InputError

GROUPS = [1, 1, 1, 2, 2, 2, 3, 3, 3, 3]
"""FedCCFA's concepts after the drift, by the last digit of the client."""


def test_sudden_drift_has_the_shares_of_fedccfa() -> None:
    before, after = drift_schedule(20, "sudden", new_groups=3)
    assert before.tolist() == [0] * 20
    assert after.tolist() == GROUPS * 2


def test_recurrent_drift_returns() -> None:
    before, after, again = drift_schedule(10, "recurrent", new_groups=3)
    assert after.tolist() == GROUPS
    assert again.tolist() == before.tolist()


def test_incremental_drift_is_one_group_after_another() -> None:
    phases = drift_schedule(10, "incremental", new_groups=3)
    drifted = [np.flatnonzero(phase).tolist() for phase in phases]
    assert drifted == [[], [0, 1, 2], [0, 1, 2, 3, 4, 5], list(range(10))]


@pytest.mark.parametrize("drift", ["sudden", "incremental", "recurrent"])
def test_a_fraction_of_each_group_drifts_to_the_next(drift: DriftKind) -> None:
    phases = drift_schedule(24, drift, groups=3, drifting=0.25, seed=4)
    moved = (phases != phases[0]).any(0)
    assert np.bincount(phases[0][moved]).tolist() == [2, 2, 2]
    target = phases[1] if drift == "recurrent" else phases[-1]
    assert (target[moved] == (phases[0][moved] + 1) % 3).all()
    other = drift_schedule(24, drift, groups=3, drifting=0.25, seed=5)
    assert not np.array_equal(phases, other)


def test_no_drift_is_two_equal_phases() -> None:
    first, second = drift_schedule(6, "none", groups=2)
    assert first.tolist() == second.tolist() == [0, 1] * 3


def test_clients_keep_their_images_and_swap_labels() -> None:
    before, after = data.drifting_image_phases(num_clients=10, seed=3)
    assert before.client_ids == after.client_ids
    assert torch.equal(before.train.x, after.train.x)
    assert before.test is not None
    assert after.test is not None
    for client, concept in enumerate(GROUPS):
        for old, new in ((before.train, after.train), (before.test, after.test)):
            swap = torch.arange(10)
            swap[[2 * concept - 1, 2 * concept]] = swap[[2 * concept, 2 * concept - 1]]
            assert torch.equal(new.of(client)[1], swap[old.of(client)[1]])
    assert after.truth is not None
    assert after.truth.labels.tolist() == [concept - 1 for concept in GROUPS]


def test_images_rotate_and_return() -> None:
    arguments = {"num_clients": 8, "shift": "rotation", "groups": 2, "new_groups": 1, "seed": 1}
    before, after, again = data.drifting_image_phases(
        drift="recurrent",
        drifting=0.5,
        **arguments,  # type: ignore[arg-type]
    )
    concepts = drift_schedule(8, "recurrent", groups=2, new_groups=1, drifting=0.5, seed=1)
    for client in range(8):
        old, new = before.train.of(client)[0], after.train.of(client)[0]
        turns = int(concepts[1][client] - concepts[0][client])
        assert torch.equal(new, old.rot90(turns, (1, 2)))
    assert before.fingerprint() == again.fingerprint()


def test_new_samples_are_others_of_the_same_client() -> None:
    whole = data.drifting_images(num_clients=6, seed=2)
    first, second = data.drifting_image_phases(
        drift="none", groups=1, new_groups=0, num_clients=6, new_samples=True, seed=2
    )
    for client in range(6):
        parts = torch.cat([phase.train.of(client)[0] for phase in (first, second)])
        original = whole.train.of(client)[0]
        assert len(parts) == len(original)
        assert torch.equal(parts.flatten(1).sum(0), original.flatten(1).sum(0)) or torch.allclose(
            parts.flatten(1).sum(0), original.flatten(1).sum(0), atol=1e-3
        )
        assert torch.equal(first.train.of(client)[0], original[0::2])


def test_a_phase_is_a_registered_data_set() -> None:
    assert data.DATASETS["drifting_images"] is data.drifting_images
    phases = data.drifting_image_phases(drift="incremental", alpha=0.5, seed=7)
    for number, phase in enumerate(phases):
        made = data.drifting_images(drift="incremental", phase=number, alpha=0.5, seed=7)
        assert made.fingerprint() == phase.fingerprint()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"phase": 2}, "phase must be from 0 to 1 for sudden drift, not 2"),
        ({"drifting": 1.5}, r"drifting must be in \[0, 1\], not 1.5"),
        ({"groups": 0}, "groups must be at least 1"),
        ({"new_groups": 11}, "new_groups must be from 0 to 10"),
        ({"new_groups": 0}, "no concept to drift to"),
        ({"groups": 3, "num_clients": 2, "new_groups": 0}, "num_clients must be at least 3"),
        ({"groups": 3, "shift": "rotation"}, "1 to 4 concepts by rotation, not 6"),
        ({"shift": "colors"}, "unknown shift 'colors'"),
        ({"drift": "slow"}, "unknown drift 'slow'"),
        ({"dataset": "letters"}, "unknown dataset 'letters'"),
    ],
)
def test_invalid_arguments_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        data.drifting_images(**settings)  # type: ignore[arg-type]


def test_phases_must_fit_together() -> None:
    clients = ClientData.from_arrays([(torch.ones(4, 2), torch.zeros(4, dtype=torch.long))] * 3)
    transforms = concept_transforms("label_swap", 2)
    with pytest.raises(InputError, match="2 phases of concepts, but data of 1"):
        drift_phases([clients], np.zeros((2, 3), int), transforms)
    with pytest.raises(InputError, match="concepts for 2 clients, but 3 clients"):
        drift_phases(clients, np.zeros((2, 2), int), transforms)
    with pytest.raises(InputError, match="concepts must be from 0 to 1"):
        drift_phases(clients, np.full((2, 3), 2), transforms)
    with pytest.raises(InputError, match=r"concepts must be \[phases, m\]"):
        drift_phases(clients, np.zeros(3, int), transforms)
    with pytest.raises(InputError, match="parts must be from 1 to 2"):
        split_samples(clients, 3)
