"""Local algorithms: what a client does in its steps.

They are registered by name, since real clients elsewhere run them.
"""

from srfca.federation.algorithms._base import (
    ALGORITHMS,
    LocalAlgorithm,
    LocalClient,
    register_algorithm,
)
from srfca.federation.algorithms.descent import Descent, Phase, Posterior

__all__ = [
    "ALGORITHMS",
    "Descent",
    "LocalAlgorithm",
    "LocalClient",
    "Phase",
    "Posterior",
    "register_algorithm",
]
