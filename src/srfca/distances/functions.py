"""Distances between two sets of models."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from srfca.distances.model_set import ModelSet
from srfca.errors import InputError, require, unknown

Distance = Callable[[ModelSet, ModelSet], np.ndarray]
"""From two sets of k and l models to distances ``[k, l]``; NaN is unknown."""

_BLOCK = 2**23
"""Numbers of two sets of models whose differences are computed at once."""


def lq(q: float) -> Distance:
    """Return the l_q norm of the difference of two models as a distance.

    Raises:
        InputError: Unless q >= 1.
    """
    require(q >= 1, f"l_q needs q >= 1, not {q}")

    def distance(a: ModelSet, b: ModelSet) -> np.ndarray:
        return norms(a.models, b.models, q).cpu().numpy()

    return distance


def norms(a: Tensor, b: Tensor, q: float, block: int | None = None) -> Tensor:
    """Return the l_q norms of the differences of two sets of rows, in float64.

    Args:
        a: ``[k, P]``
        b: ``[l, P]``
        q: At least 1, or infinity.
        block: Coordinates that are processed at once, so that the rows are never copied whole.

    Returns:
        ``[k, l]``
    """
    block = block or max(1, _BLOCK // (len(a) + len(b)))
    parts = (
        torch.cdist(u.double(), v.double(), p=q)
        for u, v in zip(a.split(block, 1), b.split(block, 1), strict=True)
    )
    if q == torch.inf:
        return reduce(torch.maximum, parts)
    return reduce(torch.add, (part**q for part in parts)) ** (1 / q)


def cosine(a: ModelSet, b: ModelSet) -> np.ndarray:
    """Return one minus the cosine of the angle between two models."""
    u, v = (torch.nn.functional.normalize(s.models.double(), dim=1) for s in (a, b))
    return (1 - u @ v.T).cpu().numpy()


def cross_loss(a: ModelSet, b: ModelSet) -> np.ndarray:
    """Return the mean of the loss of a's model on b's data and of b's model on a's data.

    If one of the two is unknown, because a client did not reply, it is the other one.
    """
    forward, backward = a.loss_on(b), b.loss_on(a).T
    forward = torch.where(forward.isnan(), backward, forward)
    return ((forward + torch.where(backward.isnan(), forward, backward)) / 2).numpy()


def one_sided_loss(a: ModelSet, b: ModelSet) -> np.ndarray:
    """Return the loss of b's model on a's data alone: only b's clients have to send a model."""
    return b.loss_on(a).T.numpy()


DISTANCES: dict[str, Distance] = {
    "cross_loss": cross_loss,
    "one_sided_loss": one_sided_loss,
    "cosine": cosine,
    "l1": lq(1),
    "l2": lq(2),
    "linf": lq(float("inf")),
}
"""Distances by name."""


def distance_named(name: str | Distance) -> Distance:
    """Return a distance by name: one of ``DISTANCES``, or ``l3``, ``l1.5``, ... for any l_q.

    >>> distance_named("l2") is DISTANCES["l2"]
    True
    """
    if not isinstance(name, str):
        return name
    if name in DISTANCES:
        return DISTANCES[name]
    try:
        return lq(float(name.removeprefix("l")))
    except InputError:
        raise
    except ValueError:
        raise unknown("distance", name, [*DISTANCES, "l3"]) from None
