"""Federations: who holds the data."""

from srfca.federation.base import Federation, Scores, Work
from srfca.federation.simulation import Simulation

__all__ = ["Federation", "Scores", "Simulation", "Work"]
