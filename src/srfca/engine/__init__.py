"""The simulator: all clients on one machine, trained in batched blocks."""

from srfca.engine.simulation import Simulation

__all__ = ["Simulation"]
