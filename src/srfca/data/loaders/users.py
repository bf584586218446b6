"""Samples that belong to users: writers, speaking roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Part:
    """The samples of all users, one user after another; user i has ``sizes[i]`` of them."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each user's samples begin: ``[m]``."""
        return np.cumsum(self.sizes) - self.sizes

    def of(self, user: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """One user's ``x`` and ``y``, as views."""
        start = int(self.offsets[user])
        span = slice(start, start + int(self.sizes[user]))
        return self.x[span], self.y[span]

    def take(self, users: Sequence[int] | NDArray[np.int64]) -> Part:
        """A copy of these users' samples, in this order."""
        chosen = np.asarray(users, np.int64)
        rows = spans(self.offsets[chosen], self.sizes[chosen])
        return Part(self.x[rows], self.y[rows], self.sizes[chosen])


@dataclass(frozen=True)
class Users:
    """Training and test samples of every user.

    Every user has training data. A user may have no test data, where the publisher gives none:
    ``keep(test=1)`` leaves those out.
    """

    names: tuple[str, ...]
    train: Part
    test: Part

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        counts = f"{len(self.train.x)} for training, {len(self.test.x)} for testing"
        return f"Users({len(self)} users, {counts}, {self.train.x.shape[1:]})"

    def take(self, users: Sequence[int] | NDArray[np.int64]) -> Users:
        """These users alone, in this order."""
        return Users(
            tuple(self.names[int(user)] for user in users),
            self.train.take(users),
            self.test.take(users),
        )

    def keep(self, *, samples: int = 0, train: int = 1, test: int = 0) -> Users:
        """The users with at least so many samples in all, for training and for testing."""
        sizes, held = self.train.sizes, self.test.sizes
        return self.take(
            np.flatnonzero((sizes + held >= samples) & (sizes >= train) & (held >= test))
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything as arrays by name; ``from_arrays`` undoes it."""
        return {
            "names": np.array(self.names, dtype=np.str_),
            "train_x": self.train.x,
            "train_y": self.train.y,
            "train_sizes": self.train.sizes,
            "test_x": self.test.x,
            "test_y": self.test.y,
            "test_sizes": self.test.sizes,
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Users:
        """Users from what ``arrays`` gave."""
        parts = (
            Part(arrays[f"{part}_x"], arrays[f"{part}_y"], arrays[f"{part}_sizes"])
            for part in ("train", "test")
        )
        return cls(tuple(arrays["names"].tolist()), *parts)


def spans(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers ``start, ..., start + size - 1`` of every span, one span after another.

    >>> spans(np.array([10, 3]), np.array([2, 3])).tolist()
    [10, 11, 3, 4, 5]
    """
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(starts, sizes) + within
