"""Statistics of known distributions as normal scores, so that one limit serves all of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_SMALLEST = 1e-300
"""The smallest probability that counts as more than 0: a score of 37."""


def from_tail(probability: Array) -> Array:
    """Return the normal score with this probability above it.

    >>> from_tail(np.array([0.5, 0.00135])).round(2).tolist()
    [0.0, 3.0]
    """
    from scipy.special import ndtri

    return np.asarray(0.0 - ndtri(np.clip(probability, _SMALLEST, 1.0 - 1e-16)))


def from_student(values: Array, freedom: float) -> Array:
    """Return values of Student's t as normal scores.

    >>> from_student(np.array([-3.0, 0.0, 3.0]), 5.0).round(2).tolist()
    [-2.17, 0.0, 2.17]
    """
    from scipy.special import stdtr

    tail = from_tail(stdtr(freedom, -np.abs(values)))
    return np.asarray(np.sign(values) * np.abs(tail))


def from_chi_bar(squares: Array, count: NDArray[np.int64]) -> Array:
    """Return sums of squares of the positive ones of ``count`` normal variables as normal scores.

    Fewer than two variables have no score: minus infinity.

    >>> from_chi_bar(np.array([0.0, 20.0, 20.0]), np.array([2, 2, 1])).round(2).tolist()
    [-0.67, 4.17, -inf]
    """
    from scipy.special import chdtrc, gammaln

    most = int(count.max(initial=0))
    positive = np.arange(1, most + 1)
    total = count[..., None].astype(np.float64)
    inside = positive <= total
    logarithm = gammaln(total + 1) - gammaln(positive + 1.0)
    logarithm -= gammaln(np.where(inside, total - positive, 0) + 1)
    weights = np.where(inside, np.exp(logarithm - total * np.log(2.0)), 0.0)
    tail = (weights * chdtrc(positive, squares[..., None])).sum(-1)
    return np.where(count > 1, from_tail(tail), -np.inf)


def from_hotelling(squares: Array, width: int, freedom: Array) -> Array:
    """Return squared Mahalanobis distances, in units of their variance, as normal scores.

    Args:
        squares: The distances.
        width: Their dimension, d.
        freedom: Degrees of freedom of the covariance, which was estimated.

    >>> from_hotelling(np.array([0.0, 20.0]), 2, np.array([50.0, 50.0])).round(2).tolist()
    [-8.21, 3.47]
    """
    from scipy.special import fdtrc

    second = np.maximum(freedom - width + 1, 1.0)
    ratio = np.maximum(freedom, 1.0) * width
    return from_tail(fdtrc(width, second, squares * second / ratio))
