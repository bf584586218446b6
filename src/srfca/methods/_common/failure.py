"""Trainings that ended, but failed: worse than predicting a constant."""

from __future__ import annotations

import warnings
from typing import Any

from srfca.errors import SrfcaWarning

FACTOR = 10.0
"""A loss of more than this many times that of a constant is a failure; overfitting may reach 5."""


def warn_of_failure(method: str, loss: float | None, federation: Any) -> None:
    """Warn if a loss is far above that of predicting a constant.

    Args:
        method: Name of the method.
        loss: Mean over the clients, on data that was not trained on; None if there are none.
        federation: The clients; it may know ``constant_loss``, as a simulation does.
    """
    constant = getattr(federation, "constant_loss", None)
    if loss is None or not constant or not loss > FACTOR * constant:
        return
    warnings.warn(
        f"training failed: {method} ends with a loss of {loss:.3g} on held-out data, while that of "
        f"predicting a constant is {constant:.3g}. Lower lr (to a tenth, say), or set "
        "clip=1; features of very different sizes must be standardized",
        SrfcaWarning,
        stacklevel=3,
    )
