"""Samples as rows of numbers, in which they travel: inputs first, then targets."""

from __future__ import annotations

import torch
from torch import Tensor

from srfca.errors import require


def flatten_samples(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Return samples as rows ``[n, w]`` in double precision.

    Args:
        x: Inputs, ``[n, ...]``.
        y: Targets, ``[n, ...]``; None leaves them out.

    >>> flatten_samples(torch.tensor([[1.0, 2.0]]), torch.tensor([7])).tolist()
    [[1.0, 2.0, 7.0]]
    """
    parts = [x] if y is None else [x, y]
    return torch.cat([part.unsqueeze(1).flatten(1).double() for part in parts], dim=1)


def inputs_of(rows: Tensor, like: Tensor) -> Tensor:
    """Return the inputs of samples.

    Args:
        rows: ``[n, w]``
        like: Inputs ``[n', ...]`` whose shape and type these have.

    Raises:
        InputError: If the rows have too few numbers.
    """
    width = like[:1].numel()
    require(
        rows.ndim == 2 and rows.shape[1] >= width,
        f"samples of {width} numbers in an input need rows of at least as many, not "
        f"{tuple(rows.shape)}",
    )
    return rows[:, :width].reshape(len(rows), *like.shape[1:]).to(like)


def targets_of(rows: Tensor, inputs: Tensor, like: Tensor) -> Tensor:
    """Return the targets of samples.

    Args:
        rows: ``[n, w]``
        inputs: Inputs ``[n', ...]`` of such samples.
        like: Targets ``[n', ...]`` whose shape and type these have.

    Raises:
        InputError: If the rows have no targets, or others.

    >>> rows = torch.tensor([[1.0, 2.0, 7.0]])
    >>> targets_of(rows, torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64)).tolist()
    [7]
    """
    numbers = rows[:, inputs[:1].numel() :]
    require(
        numbers.shape[1] == like[:1].numel(),
        f"targets have {like[:1].numel()} numbers, but {numbers.shape[1]} follow the inputs",
    )
    return numbers.reshape(len(rows), *like.shape[1:]).to(like)
