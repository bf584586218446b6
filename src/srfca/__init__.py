"""srfca: clustered federated learning without knowing the number of clusters.

Everything in ``__all__`` of this module, and of the modules listed there, is public and follows
semantic versioning (docs/stability.md). Names that begin with an underscore, and modules that are
not listed, may change at any time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from srfca._version import __version__
from srfca.errors import InputError, SrfcaWarning

if TYPE_CHECKING:
    from srfca import (
        aggregation,
        analysis,
        data,
        distances,
        federation,
        methods,
        models,
        sklearn,
        testing,
        theory,
    )
    from srfca.clustering import Partition, cluster
    from srfca.data import ClientData
    from srfca.engine import Simulation
    from srfca.federation import Federation, LocalTraining
    from srfca.fitting import fit
    from srfca.methods import Method, Result
    from srfca.methods.fedavg import FedAvg
    from srfca.methods.local import Local
    from srfca.methods.sr_fca import SRFCA

_MODULE_OF = {
    "ClientData": "srfca.data",
    "FedAvg": "srfca.methods.fedavg",
    "Federation": "srfca.federation",
    "Local": "srfca.methods.local",
    "LocalTraining": "srfca.federation",
    "Method": "srfca.methods",
    "Partition": "srfca.clustering",
    "Result": "srfca.methods",
    "SRFCA": "srfca.methods.sr_fca",
    "Simulation": "srfca.engine",
    "cluster": "srfca.clustering",
    "fit": "srfca.fitting",
}
_MODULES = (
    "aggregation", "analysis", "data", "distances", "federation", "methods", "models", "sklearn",
    "testing", "theory",
)  # fmt: skip

__all__ = [
    "SRFCA",
    "ClientData",
    "FedAvg",
    "Federation",
    "InputError",
    "Local",
    "LocalTraining",
    "Method",
    "Partition",
    "Result",
    "Simulation",
    "SrfcaWarning",
    "__version__",
    "aggregation",
    "analysis",
    "cluster",
    "data",
    "distances",
    "federation",
    "fit",
    "methods",
    "models",
    "sklearn",
    "testing",
    "theory",
]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that the command line starts fast."""
    if name in _MODULES:
        return import_module(f"srfca.{name}")
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'srfca' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
