"""Federations: who holds the data."""

from srfca.federation.base import Federation, Focus, Mixture, Sample, Scores, Work
from srfca.federation.simulation import Simulation

__all__ = ["Federation", "Focus", "Mixture", "Sample", "Scores", "Simulation", "Work"]
