"""What is known of simulated clients besides their data: the true clusters."""

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
    return _known(federation, "truth")


def true_optima(federation: Federation) -> Tensor | None:
    """Return the best model of each true cluster ``[k*, P]``, None where it is not known.

    Args:
        federation: The clients, simulated or real.
    """
    return _known(federation, "optima")


def _known(federation: Federation, name: str) -> Any:
    """Return what a federation says itself, else what is known of its data."""
    if hasattr(federation, name):
        return getattr(federation, name)
    return getattr(getattr(federation, "data", None), name, None)
