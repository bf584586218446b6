"""srfca: clustered federated learning without knowing the number of clusters."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from srfca._version import __version__
from srfca.errors import InputError

if TYPE_CHECKING:
    from srfca import aggregation, data, distances, methods, models
    from srfca.clustering import Partition, cluster
    from srfca.data import ClientData
    from srfca.federation import Federation, Simulation, Work
    from srfca.methods import SRFCA, Global, Local, Result

_HOMES = {
    "ClientData": "srfca.data",
    "Federation": "srfca.federation",
    "Global": "srfca.methods",
    "Local": "srfca.methods",
    "Partition": "srfca.clustering",
    "Result": "srfca.methods",
    "SRFCA": "srfca.methods",
    "Simulation": "srfca.federation",
    "Work": "srfca.federation",
    "cluster": "srfca.clustering",
}
_MODULES = ("aggregation", "data", "distances", "methods", "models")

__all__ = [
    "SRFCA",
    "ClientData",
    "Federation",
    "Global",
    "InputError",
    "Local",
    "Partition",
    "Result",
    "Simulation",
    "Work",
    "__version__",
    "aggregation",
    "cluster",
    "data",
    "distances",
    "methods",
    "models",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for, so that the command line starts at once."""
    if name in _MODULES:
        return import_module(f"srfca.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'srfca' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
