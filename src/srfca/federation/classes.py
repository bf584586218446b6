"""Classes of the clients' samples: their shares, and whether there are classes at all."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from torch import Tensor

from srfca.errors import InputError
from srfca.federation.replies import Replies
from srfca.federation.requests import MIN_CLASS_SAMPLES, ClassCounts, Request

_ADDED = 0.5
"""Samples added to each class: Krichevsky and Trofimov's estimate of shares."""


class Asks(Protocol):
    """What answers requests: a federation, or a run."""

    def ask(self, request: Request[Tensor]) -> Replies[Tensor]:
        """Send a request to its clients."""
        ...


def class_shares(counts: Tensor) -> Tensor:
    """Return the share of each class, 0 for classes that are left out.

    Half a sample is added to each class. Classes of fewer than ``MIN_CLASS_SAMPLES`` samples are
    left out; the other shares are not normalized again, because ``BalancedLosses`` depends on their
    ratios alone.

    Args:
        counts: ``[k, C]`` training samples of each class, of each model.

    Returns:
        ``[k, C]``, in float64.

    >>> import torch
    >>> class_shares(torch.tensor([[6, 2, 0, 4]])).tolist()
    [[0.4642857142857143, 0.0, 0.0, 0.32142857142857145]]
    """
    smoothed = counts.double() + _ADDED
    shares = smoothed / smoothed.sum(1, keepdim=True)
    return shares.masked_fill(counts < MIN_CLASS_SAMPLES, 0.0)


def num_classes(source: Asks) -> int | None:
    """Return the number of classes, None for clients without classes: no client is asked.

    ``ClassCounts`` and ``BalancedLosses`` raise an ``InputError`` where it is None.

    Args:
        source: A federation, or a run.

    Returns:
        C, or None.

    >>> from srfca import Simulation, data, models
    >>> num_classes(Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10)))
    10
    >>> regressions = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
    >>> num_classes(regressions) is None
    True
    """
    try:
        counts = source.ask(ClassCounts(np.empty(0, dtype=np.int64))).values
    except InputError:
        return None
    return counts.shape[1]
