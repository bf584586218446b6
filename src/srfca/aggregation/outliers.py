"""Outliers: bounds on what a few clients can do to a mean of numbers, or of rows."""

from __future__ import annotations

from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.errors import require

Array = NDArray[np.float64]

LIMIT = 5.0
"""Values further than this from the median are outliers, in typical deviations from it."""
NORM_LIMIT = 10.0
"""Rows whose change is longer than this are outliers, in median lengths. Clients of one cluster
have been seen to differ by a factor of 6."""
_TAIL = 20
"""One in this many values, and at least one, does not count in the typical deviation."""
_BLOCK = 2**22
"""Numbers whose changes are computed at once."""


@overload
def winsorize(values: Array, corrupt: int = 0) -> Array: ...
@overload
def winsorize(values: Tensor, corrupt: int = 0) -> Tensor: ...
def winsorize(values: Array | Tensor, corrupt: int = 0) -> Array | Tensor:
    """Move outliers among values to the largest deviation that is plausible.

    A value's deviation is that from the median. The typical deviation is the root mean square of
    all but the largest twentieth, and at least one. The limit is five of them, and more for few
    values, whose typical deviation is uncertain. Without outliers the values are returned as they
    are, so that a clean mean does not change by a bit. The mean of n values cannot be moved by one
    of them further than the limit divided by n, whatever that one is.

    If more than a twentieth of the values may be corrupt, as many of the largest deviations are
    reduced to the next one.

    Args:
        values: ``[..., n]``; less than three are returned as they are, and so is NaN.
        corrupt: How many values may be corrupt; at most as many as are less than half.

    Returns:
        ``[..., n]``

    Examples:
        >>> winsorize(np.array([1.0, 2.0, 3.0, 4.0, 1e30])).round(1).tolist()
        [1.0, 2.0, 3.0, 4.0, 15.2]
        >>> winsorize(np.array([1.0, 2.0, 3.0, 4.0, 5.0])).tolist()
        [1.0, 2.0, 3.0, 4.0, 5.0]
        >>> winsorize(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 1e30, 1e30]), corrupt=2).tolist()
        [1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 7.0]
    """
    if isinstance(values, Tensor):
        clipped = winsorize(values.detach().cpu().double().numpy(), corrupt)
        return torch.from_numpy(clipped).to(values)
    count = values.shape[-1]
    if count < 3:
        return values
    with np.errstate(all="ignore"):
        middle = np.median(values, axis=-1, keepdims=True)
        deviations = np.sort(np.abs(values - middle), axis=-1)
        kept = count - _usual(count)
        typical = np.sqrt(np.square(deviations[..., :kept]).mean(-1, keepdims=True))
        limit = LIMIT * (1 + 4 / kept) * typical
        kept = num_kept(count, corrupt)
        if kept < count:
            limit = np.fmin(limit, deviations[..., kept - 1 : kept])
    clipped = np.clip(values, middle - limit, middle + limit)
    return np.where(np.isfinite(limit), clipped, values)


def winsorize_groups(values: Array, labels: NDArray[np.int64], corrupt: int = 0) -> Array:
    """Winsorize values of groups; if many may be corrupt, each around the median of its group.

    What is an outlier among all values may be usual in its group. In groups of fewer than three
    values the median is that of all.

    Args:
        values: ``[n]``, finite.
        labels: ``[n]`` the group of each.
        corrupt: How many values may be corrupt, as in ``winsorize``; less than half of each group.

    Returns:
        ``[n]``

    Examples:
        >>> values = np.array([0.1, 0.2, 0.4, 0.2, 9.0, 5.1, 5.2, 5.4, 5.2, 0.0])
        >>> winsorize_groups(values, np.arange(10) // 5, corrupt=2).round(1).tolist()
        [0.1, 0.2, 0.4, 0.2, 0.4, 5.1, 5.2, 5.4, 5.2, 5.0]
    """
    count = len(values)
    bounded, kept = winsorize(values), num_kept(count, corrupt)
    if kept == count:
        return bounded
    middles = np.full(count, np.median(values))
    for label in np.unique(labels):
        members = labels == label
        if members.sum() >= 3:
            middles[members] = np.median(values[members])
    limit = np.sort(np.abs(values - middles))[kept - 1]
    return np.clip(bounded, middles - limit, middles + limit)


def num_kept(count: int, corrupt: int) -> int:
    """Return how many of some values keep their deviation in ``winsorize`` in any case.

    >>> num_kept(40, 2), num_kept(40, 10), num_kept(5, 4)
    (40, 30, 3)
    """
    return count if corrupt <= _usual(count) else count - min(corrupt, (count - 1) // 2)


def _usual(count: int) -> int:
    return max(1, count // _TAIL)


def norm_scales(lengths: Tensor, limit: float = NORM_LIMIT, dropped: int | None = None) -> Tensor:
    """Return factors that shorten the longest of some vectors to a bound.

    Args:
        lengths: ``[n]`` of the vectors.
        limit: The bound, in multiples of the reference length.
        dropped: The reference length is the largest but for this many; None is the median. The
            median suits vectors that should be alike. Where groups may differ in length, the
            largest that is not among a few suspicious ones bounds those alone.

    Returns:
        ``[n]``, 1 for all if there are less than three.

    Raises:
        InputError: Unless the limit is at least 1.

    Examples:
        >>> norm_scales(torch.tensor([1.0, 1.0, 2.0, 8.0]), limit=4)
        tensor([1.0000, 1.0000, 1.0000, 0.5000])
    """
    return scales_to(norm_bound(lengths, limit, dropped), lengths)


def norm_bound(lengths: Tensor, limit: float = NORM_LIMIT, dropped: int | None = None) -> Tensor:
    """Return the bound that ``norm_scales`` shortens to, infinite if it shortens nothing: ``[]``.

    The arguments are those of ``norm_scales``.

    Raises:
        InputError: Unless the limit is at least 1.
    """
    require(limit >= 1, f"the limit of lengths must be at least 1, not {limit}")
    count = len(lengths)
    if count < 3 or dropped == 0:
        return lengths.new_tensor(torch.inf)
    rank = (count - 1) // 2 if dropped is None else max(count - 1 - dropped, (count - 1) // 2)
    return limit * lengths.sort().values[rank]


def scales_to(bound: Tensor, lengths: Tensor) -> Tensor:
    """Return factors that shorten vectors of these lengths ``[n]`` to a bound: ``[n]``."""
    return torch.where(lengths > bound, bound / lengths, torch.ones_like(lengths))


def clip_changes(
    rows: Tensor, start: Tensor, limit: float = NORM_LIMIT, dropped: int | None = None
) -> Tensor:
    """Shorten changes from a row that are much longer than the others.

    Rows are copied only if one of them is shortened.

    Args:
        rows: ``[J, P]``
        start: ``[P]`` where the rows started from.
        limit: As in ``norm_scales``.
        dropped: As in ``norm_scales``.

    Returns:
        ``[J, P]``

    Examples:
        >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1e9, 0.0]])
        >>> clip_changes(rows, torch.zeros(2)).tolist()
        [[1.0, 0.0], [0.0, 1.0], [-10.0, 0.0]]
    """
    if len(rows) < 3:
        return rows
    lengths = change_lengths(rows, start)
    return shorten_changes(rows, start, norm_scales(lengths, limit, dropped))


def shorten_changes(rows: Tensor, start: Tensor, scales: Tensor) -> Tensor:
    """Multiply the changes of rows from a row by factors of at most 1.

    Rows are copied only if one of them is shortened.

    Args:
        rows: ``[J, P]``
        start: ``[P]`` where the rows started from.
        scales: ``[J]``

    Returns:
        ``[J, P]``
    """
    start = start.to(rows)
    long = (scales < 1).nonzero().flatten()
    if not len(long):
        return rows
    changes = (rows[long].double() - start.double()) * scales[long].unsqueeze(1)
    return rows.index_copy(0, long, (start.double() + changes).to(rows.dtype))


def long_changes(
    rows: Tensor, start: Tensor, limit: float = NORM_LIMIT, dropped: int | None = None
) -> NDArray[np.bool_]:
    """Return which rows ``clip_changes`` would shorten: ``[J]``.

    Examples:
        >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1e9, 0.0]])
        >>> long_changes(rows, torch.zeros(2)).tolist()
        [False, False, True]
    """
    scales = norm_scales(change_lengths(rows, start), limit, dropped)
    return np.asarray((scales < 1).cpu().numpy())


def change_lengths(rows: Tensor, start: Tensor) -> Tensor:
    """Return the l2 norms of the changes of rows ``[J, P]`` from a row ``[P]``: ``[J]``, float64.

    They are computed block by block to save memory.
    """
    start = start.to(rows)
    blocks = rows.split(max(1, _BLOCK // max(1, rows.shape[1])))
    norms = [torch.linalg.vector_norm(b - start, dim=1, dtype=torch.float64) for b in blocks]
    return torch.cat(norms)
