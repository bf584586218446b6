"""Some coordinates of a row: those of a few layers, say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from srfca.errors import require, unknown


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of a row as half-open ranges, in ascending order.

    Args:
        ranges: First coordinate and the one after the last of each range.

    Raises:
        InputError: If the ranges are empty or not ascending.

    >>> head = Coordinates.of_layers({"body": slice(0, 6), "head": slice(6, 9)}, ["head"])
    >>> head.ranges, len(head), head.complement(9).ranges
    (((6, 9),), 3, ((0, 6),))
    >>> head.take(torch.arange(9).view(1, 9))
    tensor([[6, 7, 8]])
    """

    ranges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        ends = [0, *(bound for pair in self.ranges for bound in pair)]
        require(
            ends == sorted(ends) and all(start < stop for start, stop in self.ranges),
            f"coordinates must be ascending, non-empty ranges, not {self.ranges}",
        )

    @classmethod
    def of_layers(cls, layers: Mapping[str, slice], names: Iterable[str]) -> Coordinates:
        """Return the coordinates of some layers.

        Args:
            layers: Where each layer lies in a row: ``federation.layers``.
            names: The layers to take.

        Raises:
            InputError: If there is no such layer.
        """
        names = list(names)
        for name in names:
            if name not in layers:
                raise unknown("layer", name, layers)
        chosen = [layers[name] for name in names]
        return cls(tuple(sorted((layer.start, layer.stop) for layer in chosen)))

    @classmethod
    def trained(cls, layers: Mapping[str, slice]) -> Coordinates:
        """Return the trained coordinates: those of all layers, without buffers like BatchNorm's.

        Args:
            layers: Where each layer lies in a row: ``federation.layers``.

        >>> Coordinates.trained({"a": slice(0, 6), "b": slice(6, 9), "c": slice(10, 12)}).ranges
        ((0, 9), (10, 12))
        """
        joined: list[tuple[int, int]] = []
        for start, stop in cls.of_layers(layers, layers).ranges:
            if joined and joined[-1][1] == start:
                start, _ = joined.pop()
            joined.append((start, stop))
        return cls(tuple(joined))

    def __len__(self) -> int:
        return sum(stop - start for start, stop in self.ranges)

    def complement(self, length: int) -> Coordinates:
        """Return all other coordinates of rows of this length.

        Args:
            length: P, the length of the rows.
        """
        bounds = [0, *(bound for pair in self.ranges for bound in pair), length]
        pairs = zip(bounds[::2], bounds[1::2], strict=True)
        return Coordinates(tuple((start, stop) for start, stop in pairs if start < stop))

    def mask(self, length: int, device: torch.device | None = None) -> Tensor:
        """Return which coordinates of a row these are: ``[P]``, boolean.

        Args:
            length: P, the length of the rows.
            device: Where the mask is to be.
        """
        mask = torch.zeros(length, dtype=torch.bool, device=device)
        for start, stop in self.ranges:
            mask[start:stop] = True
        return mask

    def take(self, rows: Tensor) -> Tensor:
        """Return these coordinates of rows ``[c, P]``: ``[c, n]``.

        Args:
            rows: ``[c, P]``

        Returns:
            ``[c, n]``, a view if there is one range.
        """
        if len(self.ranges) <= 1:
            return rows[:, slice(*self.ranges[0]) if self.ranges else slice(0)]
        return torch.cat([rows[:, start:stop] for start, stop in self.ranges], dim=1)

    def put(self, rows: Tensor, values: Tensor) -> Tensor:
        """Return rows ``[c, P]`` with these coordinates replaced by values ``[c, n]``.

        Args:
            rows: ``[c, P]``
            values: ``[c, n]``

        Returns:
            ``[c, P]``, a copy.
        """
        rows, done = rows.clone(), 0
        for start, stop in self.ranges:
            rows[:, start:stop] = values[:, done : done + stop - start]
            done += stop - start
        return rows
