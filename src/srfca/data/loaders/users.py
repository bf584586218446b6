"""Samples that belong to users: writers, speaking roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class UserSamples:
    """Samples of all users, concatenated user by user.

    Args:
        x: Inputs, ``[n, ...]``.
        y: Targets, ``[n]``.
        sizes: Number of samples of each user.
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Index of each user's first sample."""
        return np.cumsum(self.sizes) - self.sizes

    def of(self, user: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return ``x`` and ``y`` of one user, as views."""
        start = int(self.offsets[user])
        span = slice(start, start + int(self.sizes[user]))
        return self.x[span], self.y[span]

    def take(self, users: Sequence[int] | NDArray[np.int64]) -> UserSamples:
        """Return a copy of the samples of some users, in this order."""
        selected = np.asarray(users, np.int64)
        indices = ranges(self.offsets[selected], self.sizes[selected])
        return UserSamples(self.x[indices], self.y[indices], self.sizes[selected])


@dataclass(frozen=True)
class Users:
    """Training and test samples of every user.

    Every user has training samples. A user can be without test samples, if the publisher gives
    none: ``at_least(test=1)`` drops those.

    Args:
        names: The users' names, all different.
        train: Training samples.
        test: Test samples.
    """

    names: tuple[str, ...]
    train: UserSamples
    test: UserSamples

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        counts = f"{len(self.train.x)} for training, {len(self.test.x)} for testing"
        return f"Users({len(self)} users, {counts}, {self.train.x.shape[1:]})"

    def take(self, users: Sequence[int] | NDArray[np.int64]) -> Users:
        """Return some of the users, in this order."""
        return Users(
            tuple(self.names[int(user)] for user in users),
            self.train.take(users),
            self.test.take(users),
        )

    def at_least(self, *, total: int = 0, train: int = 1, test: int = 0) -> Users:
        """Return the users with a minimum number of samples.

        Args:
            total: Minimum number of training and test samples together.
            train: Minimum number of training samples.
            test: Minimum number of test samples.
        """
        train_sizes, test_sizes = self.train.sizes, self.test.sizes
        enough = train_sizes + test_sizes >= total
        return self.take(np.flatnonzero(enough & (train_sizes >= train) & (test_sizes >= test)))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays by name, for ``from_arrays``."""
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
        """Return users made from the arrays of ``to_arrays``."""
        train, test = (
            UserSamples(arrays[f"{split}_x"], arrays[f"{split}_y"], arrays[f"{split}_sizes"])
            for split in ("train", "test")
        )
        return cls(tuple(arrays["names"].tolist()), train, test)


def ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the concatenated ranges ``start, ..., start + size - 1``.

    Args:
        starts: First number of each range.
        sizes: Length of each range.

    Examples:
        >>> ranges(np.array([10, 3]), np.array([2, 3])).tolist()
        [10, 11, 3, 4, 5]
    """
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(starts, sizes) + within
