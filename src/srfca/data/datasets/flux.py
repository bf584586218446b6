"""The federations of FLUX: four kinds of distribution shift, in eight levels.

Fenoglio et al.: FLUX: Efficient Descriptor-Driven Clustered Federated Learning under Arbitrary
Distribution Shifts, NeurIPS 2025. The shifts are those of ANDA (https://github.com/alfredoLimo/ANDA),
which the authors' code (https://github.com/dariofenoglio98/FLUX) makes its data with.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from srfca.data.client_data import ClientData
from srfca.data.datasets._images import ImageSet, load_images
from srfca.data.partition import federate
from srfca.data.registry import register_dataset
from srfca.data.transforms import (
    Array,
    Transform,
    color_cast,
    compose,
    only_classes,
    permute_labels,
    rotate,
)
from srfca.data.transforms.inputs import Color
from srfca.errors import require, unknown
from srfca.parameters import choices

FluxShift = Literal["features", "labels", "labels-given-features", "features-given-labels"]
"""Which distribution differs between clients: P(X), P(Y), P(Y|X) or P(X|Y)."""
LEVELS = 8
NUM_CLASSES = 10
_LABEL_SETS = 5
"""Number of sets of classes that clients draw from, for P(Y)."""
_CLASS_ROTATIONS = 4
"""Number of angles that a class is rotated by, for P(X|Y)."""
_COLORS: tuple[Color, ...] = ("gray", "red", "blue", "green")

Pattern = tuple[float, ...]
"""The numbers that a client draws; clients with the same ones are a cluster."""


@register_dataset("flux_images")
def flux_images(
    *,
    dataset: ImageSet = "mnist",
    shift: FluxShift = "features",
    level: int = 4,
    num_clients: int = 10,
    samples: int | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """Return images with one of FLUX's four distribution shifts, at a level from 1 to 8.

    Each client draws its pattern at random, and clients with the same pattern are a true cluster:
    at high levels many clients are alone. Images have three channels, ``[3, 28, 28]`` or
    ``[3, 32, 32]``, with pixels in [0, 1].

    Args:
        dataset: "mnist", "fashion_mnist" or "cifar10".
        shift: "features", P(X): images are rotated by a multiple of ``360 / r`` degrees, with r
            from 2 to 5 at levels 1 to 4 and again at levels 5 to 8, where they also have one of
            three color casts. "labels", P(Y): a client has the classes of one of five sets of
            ``11 - level`` classes. "labels-given-features", P(Y|X): ``level`` classes are permuted
            among each other, by a permutation for each client. "features-given-labels", P(X|Y): the
            images of ``level`` classes are rotated by a multiple of 90 degrees for each client and
            class.
        level: From 1 to 8; at level 1 of "labels" and "labels-given-features" clients are alike.
        num_clients: Number of clients.
        samples: Training images per client; None to deal all images.
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.
        seed: Decides all draws.

    Returns:
        The clients; ``truth`` is their patterns.

    Raises:
        InputError: If files are missing or damaged, or an argument is out of range.

    Examples:
        With the files in the data folder::

            data = flux_images(dataset="fashion_mnist", shift="labels", level=6)
    """
    require(1 <= level <= LEVELS, f"level must be from 1 to {LEVELS}, not {level}")
    rng = np.random.default_rng([seed, num_clients, level])
    patterns = _draw_patterns(shift, level, num_clients, rng)
    distinct = list(dict.fromkeys(patterns))
    images = load_images(dataset, folder)
    return federate(
        images.train_x,
        images.train_y,
        num_clients=num_clients,
        clusters=[_transform(shift, pattern) for pattern in distinct],
        shares=[patterns.count(pattern) / num_clients for pattern in distinct],
        sizes="balanced" if samples is None else samples,
        test=(images.test_x, images.test_y),
        standardize="no",
        seed=seed,
    )


def _draw_patterns(
    shift: FluxShift, level: int, num_clients: int, rng: np.random.Generator
) -> list[Pattern]:
    """Return the pattern of each client.

    Raises:
        InputError: If there is no such shift.
    """
    match shift:
        case "features":
            rotations = 2 + (level - 1) % 4
            colors = (1, 2, 3) if level > 4 else (0,)
            bank = [
                (360 * turn / rotations, color) for turn in range(rotations) for color in colors
            ]
            return [bank[drawn] for drawn in rng.integers(len(bank), size=num_clients)]
        case "labels":
            sets = [_draw_classes(NUM_CLASSES + 1 - level, rng) for _ in range(_LABEL_SETS)]
            return [sets[drawn] for drawn in rng.integers(_LABEL_SETS, size=num_clients)]
        case "labels-given-features":
            pool = list(_draw_classes(level, rng))
            return [_permuted(pool, rng) for _ in range(num_clients)]
        case "features-given-labels":
            rotated = list(_draw_classes(level, rng))
            return [_turned(rotated, rng) for _ in range(num_clients)]
    raise unknown("shift", shift, choices(FluxShift))


def _draw_classes(count: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Draw different classes, in ascending order."""
    return tuple(np.sort(rng.permutation(NUM_CLASSES)[:count]).tolist())


def _permuted(pool: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    """Return the new name of each class, with those of a pool permuted among each other."""
    names = np.arange(NUM_CLASSES)
    names[pool] = rng.permutation(pool)
    return tuple(names.tolist())


def _turned(classes: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    """Return the quarter turns of each class, drawn for some classes and zero for the others."""
    turns = np.zeros(NUM_CLASSES, dtype=np.int64)
    turns[classes] = rng.integers(_CLASS_ROTATIONS, size=len(classes))
    return tuple(turns.tolist())


def _transform(shift: FluxShift, pattern: Pattern) -> Transform:
    """Return the transform of a pattern."""
    if shift == "features":
        degrees, color = pattern
        return compose(rotate(degrees), color_cast(_COLORS[int(color)]))
    numbers, gray = [int(number) for number in pattern], color_cast("gray")
    if shift == "labels":
        return compose(only_classes(numbers), gray)
    if shift == "labels-given-features":
        return compose(permute_labels(numbers), gray)
    return compose(_rotate_classes(numbers), gray)


def _rotate_classes(turns: Sequence[int]) -> Transform:
    """Return a transform that rotates the images of class c by ``turns[c]`` quarter turns."""

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        rotated = x.copy()
        for quarter in set(turns) - {0}:
            selected = np.isin(y, [label for label, turn in enumerate(turns) if turn == quarter])
            rotated[selected] = np.rot90(x[selected], quarter, axes=(-2, -1))
        return rotated, y

    return transform
