"""Aggregation functions: rows in, one row out.

``mean`` takes weights. The other functions are robust: they bound the influence of a few corrupt
rows. They take no weights, since a client that chooses its own weight could undo that.
"""

from __future__ import annotations

from math import floor

import torch
from torch import Tensor

from srfca.aggregation.rank_mean import rank_mean
from srfca.errors import require


def mean(rows: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean of rows, weighted or plain.

    Args:
        rows: ``[J, P]``.
        weights: ``[J]``, not negative and not all zero; None weights all rows equally.

    Returns:
        ``[P]``.

    Raises:
        InputError: If there are no rows, or the weights are invalid.

    Examples:
        >>> mean(torch.tensor([[1.0], [4.0]]), torch.tensor([2, 1]))
        tensor([2.])
    """
    _check(rows)
    if weights is None:
        return rows.mean(0)
    require(isinstance(weights, Tensor), f"weights must be a tensor, not {type(weights).__name__}")
    require(
        weights.shape == rows.shape[:1],
        f"{len(rows)} rows need as many weights, not weights of shape {tuple(weights.shape)}",
    )
    total = float(weights.double().sum())
    require(
        bool((weights >= 0).all()) and 0 < total < torch.inf,
        "weights must be finite numbers that are not negative, nor all zero",
    )
    fractions = weights.to(rows.dtype) / weights.to(rows.dtype).sum()
    return fractions @ rows


def trimmed_mean(rows: Tensor, beta: float, at_least: int = 0) -> Tensor:
    """Return the coordinate-wise trimmed mean, TrMean_beta.

    In each coordinate the ``floor(beta J)`` smallest and as many of the largest values are
    dropped. NaN counts as larger than any number.

    Args:
        rows: ``[J, P]``.
        beta: Fraction that is dropped on each side, in [0, 1/2).
        at_least: Values to drop on each side where ``floor(beta J)`` is less, if beta is not 0.

    Returns:
        ``[P]``.

    Raises:
        InputError: If there are no rows, or beta is out of range.

    Examples:
        >>> trimmed_mean(torch.tensor([[1.0], [2.0], [3.0], [100.0]]), beta=0.25)
        tensor([2.5000])
    """
    _check(rows)
    dropped = trim_count(len(rows), beta, at_least)
    return rank_mean(rows, dropped, len(rows) - dropped) if dropped else rows.mean(0)


def trim_count(count: int, beta: float, at_least: int = 0) -> int:
    """Return ``floor(beta count)``, or more: the values that are dropped on each side.

    It is exact for decimal fractions, and always leaves at least one value.

    Args:
        count: Number of values.
        beta: Fraction that is dropped on each side, in [0, 1/2).
        at_least: The least number, as far as a value is left; beta = 0 drops none.

    Returns:
        The number of values to drop on each side, at most ``(count - 1) // 2``.

    Raises:
        InputError: If beta is out of range.

    Examples:
        >>> trim_count(100, 0.29), 0.29 * 100
        (29, 28.999999999999996)
        >>> [trim_count(count, 0.1, at_least=1) for count in (2, 3, 9, 20)]
        [0, 1, 1, 2]
    """
    require(
        0 <= beta < 0.5,
        f"trim (beta) must be in [0, 1/2), not {beta}: "
        "it is cut from both ends, so that 1/2 would leave nothing",
    )
    wanted = max(floor(beta * count + 1e-9), at_least) if beta else 0
    return min(wanted, max(count - 1, 0) // 2)


def median(rows: Tensor) -> Tensor:
    """Return the coordinate-wise median, the mean of the middle two if J is even.

    Args:
        rows: ``[J, P]``.

    Returns:
        ``[P]``.

    Raises:
        InputError: If there are no rows.

    Examples:
        >>> median(torch.tensor([[1.0], [2.0], [9.0]]))
        tensor([2.])
    """
    _check(rows)
    return rank_mean(rows, (len(rows) - 1) // 2, len(rows) // 2 + 1)


def geometric_median(rows: Tensor, tolerance: float = 1e-7, iterations: int = 1000) -> Tensor:
    """Return the point with the smallest sum of l2 distances to the rows.

    Weiszfeld's algorithm with the step of Vardi and Zhang (2000), which leaves a row that the
    iteration lands on, unless that row is the solution.

    Args:
        rows: ``[J, P]``.
        tolerance: Stop at steps shorter than this, relative to the rows' median distance from
            their coordinate-wise median, where the iteration starts: a few rows that are far away
            change neither.
        iterations: Maximum number of steps.

    Returns:
        ``[P]``.

    Raises:
        InputError: If there are no rows.

    Examples:
        >>> geometric_median(torch.tensor([[0.0], [0.0], [0.0], [9.0]])).abs() < 1e-6
        tensor([True])
    """
    _check(rows)
    point = median(rows)
    scale = float((rows - point).norm(dim=1).median())
    if not 0 < scale < torch.inf:
        return point
    for _ in range(iterations):
        differences = (rows - point) / scale
        distances = differences.norm(dim=1)
        at_row = distances <= tolerance
        pull = torch.where(at_row, 0.0, 1.0 / distances.clamp(min=tolerance))
        direction = pull @ differences
        strength = float(direction.norm())
        if strength <= float(at_row.sum()):
            return point
        step = direction / pull.sum() * (1 - float(at_row.sum()) / strength)
        point = point + step * scale
        if float(step.norm()) <= tolerance:
            break
    return point


def krum(rows: Tensor, byzantine: int, keep: int = 1) -> Tensor:
    """Return the row nearest to its ``J - byzantine - 2`` nearest rows (Blanchard et al., 2017).

    Args:
        rows: ``[J, P]``, at least ``2 byzantine + 3`` of them.
        byzantine: Number of corrupt rows to tolerate.
        keep: Number of best rows whose mean is returned; more than one is Multi-Krum.

    Returns:
        ``[P]``.

    Raises:
        InputError: If there are too few rows, or ``keep`` exceeds the number of honest rows.

    Examples:
        >>> krum(torch.tensor([[0.0], [0.1], [0.3], [0.6], [99.0]]), byzantine=1)
        tensor([0.1000])
    """
    _check(rows)
    count = len(rows)
    require(
        byzantine >= 0 and count >= 2 * byzantine + 3,
        f"krum needs at least 2 byzantine + 3 rows: byzantine={byzantine}, but {count} rows",
    )
    require(1 <= keep <= count - byzantine, f"keep must be in 1..{count - byzantine}, not {keep}")
    return rows[krum_scores(rows, byzantine).argsort(stable=True)[:keep]].mean(0)


def krum_scores(rows: Tensor, byzantine: int) -> Tensor:
    """Return the sums of squared distances to the ``J - byzantine - 2`` nearest rows: ``[J]``.

    At least one row counts, if there is another.
    """
    squared = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    count = max(len(rows) - byzantine - 2, 1)
    return squared.fill_diagonal_(torch.inf).sort(1).values[:, :count].sum(1)


def _check(rows: Tensor) -> None:
    """Check that there are rows ``[J, P]`` of floating-point numbers."""
    require(isinstance(rows, Tensor), f"rows must be a tensor [J, P], not {type(rows).__name__}")
    require(
        rows.ndim == 2 and len(rows) > 0,
        f"aggregation needs rows [J, P] with J of at least 1, not of shape {tuple(rows.shape)}",
    )
    require(
        rows.is_floating_point(),
        f"rows must be floating-point numbers, not {rows.dtype}: the mean of integers need not be "
        "an integer",
    )
