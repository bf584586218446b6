"""Federations: who holds the data."""

from srfca.federation.base import Absence, Federation, Focus, Mixture, Sample, Scores, Wire, Work
from srfca.federation.simulation import Simulation

__all__ = [
    "Absence",
    "Federation",
    "Focus",
    "Mixture",
    "Sample",
    "Scores",
    "Simulation",
    "Wire",
    "Work",
]
