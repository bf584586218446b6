"""Concept drift over time: the concept of each client in each phase, and the clients' data then.

A concept is a transform: two labels swapped, or images rotated. Clients keep their samples unless
they get new ones, and change the concept between phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from srfca.clustering.partition import Partition
from srfca.data.client_data import ClientData, Samples
from srfca.data.transforms import Transform, permute_labels, rotate, unchanged
from srfca.errors import InputError, require, unknown
from srfca.parameters import choices

DriftKind = Literal["none", "sudden", "incremental", "recurrent"]
"""When clients drift: never, all at once, one group after another, or back and forth."""
ConceptShift = Literal["label_swap", "rotation"]
"""In what concepts differ."""

Concepts = NDArray[np.int64]
"""The concept of each client in each phase: ``[phases, m]``."""

_TENTHS = 10
"""New concepts are dealt by the last digit of a client's number, as FedCCFA's code does."""


def drift_schedule(
    num_clients: int,
    drift: DriftKind,
    *,
    groups: int = 1,
    new_groups: int = 0,
    drifting: float = 1.0,
    seed: int = 0,
) -> Concepts:
    """Return the concept of each client in each phase.

    At first client i has concept ``i mod groups``. A client that drifts goes to the next of these
    concepts or, if there are new groups, to one of the new concepts: of ten clients in a row each
    new concept gets as many, as far as ten can be divided (3, 3 and 4 of three).

    Args:
        num_clients: Number of clients.
        drift: "none": two phases without a change. "sudden": two phases; clients drift in the
            second one. "incremental": one phase more than there are concepts to drift to; the
            clients that go to the first one drift in the second phase, and so on. "recurrent":
            three phases; clients drift in the second one, and are back in the third.
        groups: Number of concepts at first.
        new_groups: Number of concepts that clients drift to and that no client had before; 0 for a
            drift between the concepts of the beginning.
        drifting: The fraction of each group's clients that drift, drawn by the seed.
        seed: Decides which clients drift.

    Returns:
        ``[phases, m]``

    Raises:
        InputError: If an argument is out of range.

    Examples:
        >>> drift_schedule(10, "recurrent", new_groups=3).tolist()[1]
        [1, 1, 1, 2, 2, 2, 3, 3, 3, 3]
        >>> drift_schedule(4, "incremental", groups=2).tolist()
        [[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 1, 0]]
    """
    require(groups >= 1, f"groups must be at least 1, not {groups}")
    require(0 <= new_groups <= _TENTHS, f"new_groups must be from 0 to {_TENTHS}, not {new_groups}")
    require(0 <= drifting <= 1, f"drifting must be in [0, 1], not {drifting}")
    require(
        num_clients >= max(groups, new_groups),
        f"num_clients must be at least {max(groups, new_groups)}, not {num_clients}",
    )
    require(
        drift == "none" or groups > 1 or new_groups > 0,
        "with one group at first, new_groups must be at least 1: there is no concept to drift to",
    )
    before = np.arange(num_clients) % groups
    moving = _drifting_clients(before, drifting, np.random.default_rng([seed, num_clients, groups]))
    target = np.array(before)
    if new_groups:
        bounds = [_TENTHS * (group + 1) // new_groups for group in range(new_groups)]
        rank = np.arange(len(moving)) % _TENTHS
        turn = np.searchsorted(bounds, rank, side="right")
        target[moving] = groups + turn
    else:
        target[moving] = (before[moving] + 1) % groups
    match drift:
        case "none":
            return np.stack([before, before])
        case "sudden":
            return np.stack([before, target])
        case "recurrent":
            return np.stack([before, target, before])
        case "incremental":
            order = target - groups if new_groups else target
            turns = range(-1, new_groups or groups)
            return np.stack([np.where(order <= turn, target, before) for turn in turns])
    raise unknown("drift", drift, choices(DriftKind))


def concept_transforms(shift: ConceptShift, count: int, num_classes: int = 10) -> list[Transform]:
    """Return the transforms of some concepts; the first one changes nothing.

    Args:
        shift: "label_swap": concept j > 0 swaps the labels ``2j - 1`` and ``2j``. "rotation": by
            multiples of ``360 / count`` degrees.
        count: Number of concepts; of rotations 1, 2, 3 or 4, and three are as the first of four.
        num_classes: Number of classes, of label swaps.

    Returns:
        The transform of each concept.

    Raises:
        InputError: If there are fewer concepts of this kind.

    Examples:
        >>> _, swap = concept_transforms("label_swap", 2)
        >>> swap(np.zeros(4), np.array([0, 1, 2, 3]))[1].tolist()
        [0, 2, 1, 3]
    """
    limits = {"label_swap": 1 + (num_classes - 1) // 2, "rotation": 4}
    if shift not in limits:
        raise unknown("shift", shift, choices(ConceptShift))
    require(
        1 <= count <= limits[shift],
        f"there can be 1 to {limits[shift]} concepts by {shift}, not {count}",
    )
    if shift == "rotation":
        return [rotate(turn * (180.0 if count == 2 else 90.0)) for turn in range(count)]
    return [unchanged, *(_swap(2 * j - 1, 2 * j, num_classes) for j in range(1, count))]


def drift_phases(
    data: ClientData | Sequence[ClientData],
    concepts: Concepts,
    transforms: Sequence[Transform],
) -> tuple[ClientData, ...]:
    """Return the clients' data in each phase, with the clients' concepts as the true partition.

    Args:
        data: The samples of the clients before any concept: one ``ClientData`` if clients keep
            their samples, or one for each phase.
        concepts: ``[phases, m]`` the concept of each client in each phase.
        transforms: The transform of each concept.

    Returns:
        Data for each phase, with the same clients.

    Raises:
        InputError: If numbers of phases, clients or concepts do not fit together.

    Examples:
        >>> from srfca import data
        >>> digits = data.rotated_digits(num_clients=10, rotations=1)
        >>> concepts = drift_schedule(10, "sudden", new_groups=2)
        >>> before, after = drift_phases(digits, concepts, concept_transforms("label_swap", 3))
        >>> before.truth.num_clusters, after.truth.num_clusters
        (1, 2)
    """
    concepts = np.asarray(concepts)
    require(concepts.ndim == 2, f"concepts must be [phases, m], not of shape {concepts.shape}")
    sources = [data] * len(concepts) if isinstance(data, ClientData) else list(data)
    require(
        len(sources) == len(concepts),
        f"there are {len(concepts)} phases of concepts, but data of {len(sources)}",
    )
    require(
        concepts.size > 0 and concepts.min() >= 0 and concepts.max() < len(transforms),
        f"concepts must be from 0 to {len(transforms) - 1}: there are {len(transforms)} transforms",
    )
    return tuple(
        _with_concepts(source, row, transforms)
        for source, row in zip(sources, concepts, strict=True)
    )


def split_samples(data: ClientData, parts: int) -> list[ClientData]:
    """Divide each client's training samples into parts, so that each phase has new ones.

    Args:
        data: The clients; test samples are the same in all parts.
        parts: Number of parts.

    Raises:
        InputError: If a client has fewer than two training samples for each part.

    Examples:
        >>> from srfca import data
        >>> digits = data.rotated_digits(num_clients=10)
        >>> [int(part.train.sizes.sum()) for part in split_samples(digits, 2)]
        [720, 720]
    """
    least = int(data.train.sizes.min())
    require(
        1 <= parts <= least // 2,
        f"parts must be from 1 to {max(least // 2, 1)}, half of the samples of the client with the "
        f"fewest, not {parts}",
    )
    sources = []
    for part in range(parts):
        train = {}
        for client, client_id in enumerate(data.client_ids):
            x, y = data.train.of(client)
            train[client_id] = x[part::parts], y[part::parts]
        test = None
        if data.test is not None:
            test = {name: data.test.of(client) for client, name in enumerate(data.client_ids)}
        sources.append(ClientData.from_arrays(train, test, data.truth))
    return sources


def _with_concepts(
    data: ClientData, concepts: NDArray[np.int64], transforms: Sequence[Transform]
) -> ClientData:
    """Apply each client's concept to its samples."""
    if len(concepts) != len(data):
        raise InputError(f"there are concepts for {len(concepts)} clients, but {len(data)} clients")

    def changed(samples: Samples) -> dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]]:
        arrays = {}
        for client, client_id in enumerate(data.client_ids):
            x, y = samples.of(client)
            new_x, new_y = transforms[concepts[client]](x.numpy(), y.numpy())
            arrays[client_id] = np.array(new_x), np.array(new_y)
        return arrays

    test = None if data.test is None else changed(data.test)
    return ClientData.from_arrays(changed(data.train), test, Partition(concepts))


def _drifting_clients(
    groups: NDArray[np.int64], fraction: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw a fraction of each group's clients, in ascending order."""
    chosen = [
        rng.permutation(members)[: round(fraction * len(members))] for members in Partition(groups)
    ]
    return np.sort(np.concatenate(chosen))


def _swap(first: int, second: int, num_classes: int) -> Transform:
    """Return a transform that swaps two labels."""
    order = list(range(num_classes))
    order[first], order[second] = second, first
    return permute_labels(order)
