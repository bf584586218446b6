"""The true clusters of simulated clients, and their best models."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation import Federation


def true_partition(federation: Federation) -> Partition | None:
    """Return the true partition of clients, None where it is not known.

    Args:
        federation: The clients, simulated or real.
    """
    truth: Partition | None = _attribute(federation, "truth")
    return truth


def true_optima(federation: Federation) -> Tensor | None:
    """Return the best model of each true cluster ``[k*, P]``, None where it is not known.

    Args:
        federation: The clients, simulated or real.
    """
    optima: Tensor | None = _attribute(federation, "optima")
    return optima


def _attribute(federation: Federation, name: str) -> Any:
    """Return an attribute of a federation, else of its data, None if neither has it."""
    if hasattr(federation, name):
        return getattr(federation, name)
    return getattr(getattr(federation, "data", None), name, None)
