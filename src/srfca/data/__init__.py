"""Client data: what the clients hold, with the true partition where it is known."""

from srfca.data.clients import ClientData, Samples
from srfca.data.digits import rotated_digits
from srfca.data.synthetic import synthetic

__all__ = ["ClientData", "Samples", "rotated_digits", "synthetic"]
