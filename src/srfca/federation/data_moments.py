"""Sums of clients' data by class: what clients report instead of samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from srfca.errors import require
from srfca.federation.requests import MIN_CLASS_SAMPLES

_PASS = 2**22
"""Numbers that are held at once."""


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """The reply to ``DataMoments``, by name: of c clients, or of c groups of clients.

    Args:
        counts: ``[c, g]`` samples of each class.
        sums: ``[c, g, w]`` sums of the columns over these samples.
        squares: ``[c, g, w]`` sums of their squares.
    """

    counts: Tensor
    sums: Tensor
    squares: Tensor

    def pack(self) -> Tensor:
        """Return everything in one tensor: ``[c, g, 1 + 2 w]``."""
        return torch.cat([self.counts.unsqueeze(2), self.sums, self.squares], dim=2)

    @classmethod
    def unpack(cls, values: Tensor) -> ColumnMoments:
        """Return what ``pack`` packed.

        Raises:
            InputError: If the tensor has another shape.
        """
        require(
            values.ndim == 3 and values.shape[2] % 2 == 1,
            f"moments of data have no shape {tuple(values.shape)}",
        )
        width = values.shape[2] // 2
        return cls(values[..., 0], values[..., 1 : 1 + width], values[..., 1 + width :])


def columns_of(x: Tensor, y: Tensor) -> Tensor:
    """Return the numbers of each sample: of inputs and targets, as far as they are floats.

    Args:
        x: Inputs, ``[n, ...]``.
        y: Targets, ``[n, ...]``.

    Returns:
        ``[n, w]``, in double precision.

    >>> columns_of(torch.ones(3, 2, 2), torch.tensor([0, 1, 0])).shape
    torch.Size([3, 4])
    >>> columns_of(torch.ones(3, 2), torch.zeros(3)).shape
    torch.Size([3, 3])
    """
    parts = [values.reshape(len(x), -1) for values in (x, y) if values.is_floating_point()]
    return torch.cat([part.double() for part in parts] or [x.new_zeros(len(x), 0).double()], dim=1)


def column_moments(
    x: Tensor, y: Tensor, owner: Tensor, groups: Tensor, num_clients: int, num_groups: int
) -> ColumnMoments:
    """Return the sums of clients' samples by group, without groups of too few samples.

    Args:
        x: Inputs, ``[n, ...]``.
        y: Targets, ``[n, ...]``.
        owner: ``[n]`` the client of each sample.
        groups: ``[n]`` the group of each sample.
        num_clients: c
        num_groups: g
    """
    width = columns_of(x[:1], y[:1]).shape[1]
    cells = owner * num_groups + groups
    size = num_clients * num_groups
    counts = torch.bincount(cells, minlength=size).double()
    sums = torch.zeros(size, width, dtype=torch.float64, device=x.device)
    squares = torch.zeros_like(sums)
    for part in torch.arange(len(cells), device=x.device).split(max(1, _PASS // max(width, 1))):
        columns = columns_of(x[part], y[part])
        sums.index_add_(0, cells[part], columns)
        squares.index_add_(0, cells[part], columns.square())
    enough = counts >= MIN_CLASS_SAMPLES
    shape = (num_clients, num_groups)
    return ColumnMoments(
        (counts * enough).view(shape),
        (sums * enough.unsqueeze(1)).view(*shape, width),
        (squares * enough.unsqueeze(1)).view(*shape, width),
    )
