"""Client data: what the clients hold, with the true partition where it is known."""

from collections.abc import Callable

from srfca.data.clients import ClientData, Samples
from srfca.data.custom import load
from srfca.data.digits import rotated_digits
from srfca.data.synthetic import synthetic

DATA_SETS: dict[str, Callable[..., ClientData]] = {
    "rotated_digits": rotated_digits,
    "synthetic": synthetic,
}
"""Data sets by the names that experiments use."""

__all__ = ["DATA_SETS", "ClientData", "Samples", "load", "rotated_digits", "synthetic"]
