"""Aggregation: rows in, one row out.

``mean`` takes weights. The others are robust: they bound what a few wrong rows can do, and a weight
that a client chooses would undo that.
"""

from __future__ import annotations

from math import floor

import torch
from torch import Tensor

from srfca.errors import require
from srfca.ranks import rank_mean


def mean(rows: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean of rows ``[J, P]``, weighted by ``weights`` ``[J]`` or plain: ``[P]``."""
    _check(rows)
    if weights is None:
        return rows.mean(0)
    require(
        weights.shape == rows.shape[:1],
        f"{len(rows)} rows need as many weights, not {len(weights)}",
    )
    require(
        bool((weights >= 0).all()) and float(weights.sum()) > 0,
        "weights must not be negative, nor all zero",
    )
    share = weights.to(rows.dtype) / weights.to(rows.dtype).sum()
    return share @ rows


def trimmed_mean(rows: Tensor, beta: float) -> Tensor:
    """TrMean_beta: drop the ``floor(beta J)`` smallest and as many largest of each coordinate.

    >>> trimmed_mean(torch.tensor([[1.0], [2.0], [3.0], [100.0]]), beta=0.25)
    tensor([2.5000])
    """
    _check(rows)
    dropped = trim_count(len(rows), beta)
    return rank_mean(rows, dropped, len(rows) - dropped) if dropped else rows.mean(0)


def trim_count(count: int, beta: float) -> int:
    """``floor(beta count)``, the number of values dropped on each side, exact for decimal beta."""
    require(
        0 <= beta < 0.5,
        f"trim (beta) must be in [0, 1/2), not {beta}: "
        "it is cut from both ends, so that 1/2 would leave nothing",
    )
    return min(floor(beta * count + 1e-9), max(count - 1, 0) // 2)


def median(rows: Tensor) -> Tensor:
    """Coordinate-wise median; the mean of the middle two when J is even."""
    _check(rows)
    return rank_mean(rows, (len(rows) - 1) // 2, len(rows) // 2 + 1)


def geometric_median(rows: Tensor, tolerance: float = 1e-7, iterations: int = 1000) -> Tensor:
    """The point with the least sum of l2 distances to the rows (Weiszfeld, as Vardi and Zhang).

    Their step leaves a row that the iteration lands on, unless that row is the answer.
    """
    _check(rows)
    at = rows.mean(0)
    scale = float((rows - at).norm(dim=1).max()) or 1.0
    for _ in range(iterations):
        away = (rows - at) / scale
        distance = away.norm(dim=1)
        here = distance <= tolerance
        pull = torch.where(here, 0.0, 1.0 / distance.clamp(min=tolerance))
        direction = pull @ away
        strength = float(direction.norm())
        if strength <= float(here.sum()):
            return at
        step = direction / pull.sum() * (1 - float(here.sum()) / strength)
        at = at + step * scale
        if float(step.norm()) <= tolerance:
            break
    return at


def krum(rows: Tensor, byzantine: int, keep: int = 1) -> Tensor:
    """Krum (Blanchard et al., 2017): the row nearest to its ``J - byzantine - 2`` nearest others.

    With ``keep > 1`` the mean of the ``keep`` best rows (Multi-Krum).
    """
    _check(rows)
    count = len(rows)
    require(
        byzantine >= 0 and count >= 2 * byzantine + 3,
        f"krum needs at least 2 byzantine + 3 rows: byzantine={byzantine}, but {count} rows",
    )
    require(1 <= keep <= count - byzantine, f"keep must be in 1..{count - byzantine}, not {keep}")
    squared = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    nearest = squared.fill_diagonal_(torch.inf).sort(1).values[:, : count - byzantine - 2]
    return rows[nearest.sum(1).argsort(stable=True)[:keep]].mean(0)


def _check(rows: Tensor) -> None:
    require(
        rows.ndim == 2 and len(rows) > 0, f"aggregation needs rows [J, P], not {tuple(rows.shape)}"
    )
