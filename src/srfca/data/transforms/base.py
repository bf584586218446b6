"""What a transform is, transforms that draw random numbers, and several transforms in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Transform = Callable[[Array, Array], tuple[Array, Array]]
"""From inputs ``[n, ...]`` and labels ``[n]`` to the inputs and labels of a cluster or client."""
Split = Literal["train", "test"]
Splits = Literal["train", "all"]
"""Whether a transform concerns training samples alone, or test samples too."""


def unchanged(x: Array, y: Array) -> tuple[Array, Array]:
    """Return inputs and labels unchanged.

    Args:
        x: Inputs, ``[n, ...]``.
        y: Labels, ``[n]``.

    Returns:
        The same ``[n, ...]`` and ``[n]``.

    Examples:
        >>> unchanged(np.array([1, 2]), np.array([0, 1]))
        (array([1, 2]), array([0, 1]))
    """
    return x, y


@dataclass(frozen=True)
class RandomTransform:
    """A transform that draws random numbers.

    ``federate`` applies it to each client's samples, after they are dealt, with random numbers of
    the client's own. Called like any other transform it draws from seed 0.

    Args:
        draw: Transforms inputs and labels, with a generator of random numbers.
        splits: "train" to leave test samples unchanged, or "all".

    Examples:
        >>> jitter = RandomTransform(lambda x, y, rng: (x + rng.normal(size=x.shape), y))
        >>> jitter(np.zeros(2), np.zeros(2))[0].round(1).tolist()
        [0.1, -0.1]
    """

    draw: Callable[[Array, Array, np.random.Generator], tuple[Array, Array]]
    splits: Splits = "all"

    def __call__(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Transform inputs and labels with random numbers of seed 0."""
        return self.draw(x, y, np.random.default_rng(0))


@dataclass(frozen=True)
class Chain:
    """Transforms in turn; ``compose`` makes one.

    Args:
        transforms: The transforms, none of them a chain.

    Examples:
        >>> from srfca.data.transforms import invert, transpose
        >>> compose(invert, compose(transpose, unchanged)) == Chain((invert, transpose, unchanged))
        True
    """

    transforms: tuple[Transform, ...]

    def __call__(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Apply the transforms in turn."""
        for transform in self.transforms:
            x, y = transform(x, y)
        return x, y


def compose(*transforms: Transform) -> Chain:
    """Return a transform that applies others in turn, the first one first.

    Args:
        *transforms: The transforms.

    Returns:
        The transforms as one.

    Examples:
        >>> from srfca.data.transforms import invert, shift_labels
        >>> x, y = compose(invert, shift_labels(10))(np.array([0, 255]), np.array([3, 9]))
        >>> x.tolist(), y.tolist()
        ([255, 0], [4, 0])
    """
    return Chain(tuple(part for transform in transforms for part in _parts(transform)))


def apply(
    transform: Transform, x: Array, y: Array, *, split: Split, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Apply a transform to training or test samples.

    Args:
        transform: The transform.
        x: Inputs, ``[n, ...]``.
        y: Labels, ``[n]``.
        split: What the samples are for: a transform of training samples leaves others unchanged.
        rng: Random numbers for the transforms that draw some.

    Returns:
        Inputs ``[n, ...]`` and labels ``[n]``, transformed.

    Examples:
        >>> from srfca.data.transforms import label_noise
        >>> noisy, rng = label_noise(1.0, 2, splits="train"), np.random.default_rng(0)
        >>> x, y = np.zeros(3), np.array([0, 1, 1])
        >>> [apply(noisy, x, y, split=split, rng=rng)[1].tolist() for split in ("train", "test")]
        [[1, 0, 0], [0, 1, 1]]
    """
    for part in _parts(transform):
        if not isinstance(part, RandomTransform):
            x, y = part(x, y)
        elif split == "train" or part.splits == "all":
            x, y = part.draw(x, y, rng)
    return x, y


def split_at_random_part(transform: Transform) -> tuple[Chain, Chain]:
    """Return what a transform does before it draws random numbers, and the rest."""
    parts = _parts(transform)
    draws = [isinstance(part, RandomTransform) for part in parts]
    first = draws.index(True) if any(draws) else len(parts)
    return Chain(parts[:first]), Chain(parts[first:])


def _parts(transform: Transform) -> tuple[Transform, ...]:
    return transform.transforms if isinstance(transform, Chain) else (transform,)
