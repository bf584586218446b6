"""Transforms of labels: concepts differ, classes are left out, or labels are noisy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from srfca.data.transforms.base import Array, RandomTransform, Splits, Transform
from srfca.errors import require, unknown
from srfca.parameters import choices


def permute_labels(order: Sequence[int]) -> Transform:
    """Return a transform that renames class c to ``order[c]``.

    Args:
        order: A permutation of the classes 0 to C - 1.

    Returns:
        The transform; it raises ``InputError`` for labels outside of 0 to C - 1.

    Raises:
        InputError: If ``order`` is not a permutation.

    Examples:
        >>> permute_labels([1, 2, 0])(np.zeros(3), np.array([0, 1, 2]))[1].tolist()
        [1, 2, 0]
    """
    new_labels = np.asarray(order)
    num_classes = len(new_labels)
    require(
        sorted(new_labels.tolist()) == list(range(num_classes)),
        f"order must name each class from 0 to {num_classes - 1} once, not {list(order)}",
    )

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        require(
            bool(((y >= 0) & (y < num_classes)).all()),
            f"order names classes 0 to {num_classes - 1}, but labels are from "
            f"{int(y.min(initial=0))} to {int(y.max(initial=0))}",
        )
        return x, new_labels[y]

    return transform


def only_classes(classes: Sequence[int]) -> Transform:
    """Return a transform that drops the samples of all other classes.

    Args:
        classes: The classes to keep.

    Returns:
        The transform.

    Examples:
        >>> only_classes([0, 2])(np.array([10, 11, 12]), np.array([0, 1, 2]))[0].tolist()
        [10, 12]
    """

    def transform(x: Array, y: Array) -> tuple[Array, Array]:
        selected = np.isin(y, list(classes))
        return x[selected], y[selected]

    return transform


def reverse_labels(num_classes: int) -> Transform:
    """Return a transform that renames class c to ``C - 1 - c``.

    Args:
        num_classes: Number of classes, C.

    Returns:
        The transform.

    Examples:
        >>> reverse_labels(10)(np.zeros(3), np.array([0, 1, 9]))[1].tolist()
        [9, 8, 0]
    """
    return permute_labels(range(num_classes - 1, -1, -1))


def shift_labels(num_classes: int, by: int = 1) -> Transform:
    """Return a transform that renames class c to ``c + by``, modulo the number of classes.

    Args:
        num_classes: Number of classes.
        by: The shift.

    Returns:
        The transform.

    Examples:
        >>> shift_labels(10)(np.zeros(3), np.array([0, 1, 9]))[1].tolist()
        [1, 2, 0]
    """
    return permute_labels([(label + by) % num_classes for label in range(num_classes)])


def label_noise(rate: float, num_classes: int, *, splits: Splits) -> RandomTransform:
    """Return a transform that replaces labels at random: symmetric label noise.

    Each label is replaced with probability ``rate``, by any of the other classes alike.

    Args:
        rate: The probability, in [0, 1].
        num_classes: Number of classes, at least 2.
        splits: "train" for noise in training labels alone, so that scores are those of the right
            labels; "all" for noise in test labels too.

    Returns:
        The transform.

    Raises:
        InputError: If an argument is out of range; in the transform, if a label is.

    Examples:
        >>> noisy = label_noise(0.5, 10, splits="train")
        >>> _, y = noisy(np.zeros(1000), np.zeros(1000, np.int64))
        >>> bool(400 < (y != 0).sum() < 600), sorted(set(y.tolist())) == list(range(10))
        (True, True)
    """
    require(0 <= rate <= 1, f"rate must be in [0, 1], not {rate}")
    require(num_classes >= 2, f"num_classes must be at least 2, not {num_classes}")
    if splits not in choices(Splits):
        raise unknown("splits", splits, choices(Splits))

    def draw(x: Array, y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        require(
            bool(((y >= 0) & (y < num_classes)).all()),
            f"label_noise is for classes 0 to {num_classes - 1}, but labels are from "
            f"{int(y.min(initial=0))} to {int(y.max(initial=0))}",
        )
        replaced = rng.random(len(y)) < rate
        others = (y + rng.integers(1, num_classes, len(y))) % num_classes
        return x, np.where(replaced, others, y)

    return RandomTransform(draw, splits)
