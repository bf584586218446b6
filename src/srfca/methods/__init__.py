"""Methods: what the server does. One file each."""

from srfca.methods.base import Method
from srfca.methods.cfl import CFL
from srfca.methods.fedavg import Global
from srfca.methods.fedprox import FedProx
from srfca.methods.hierarchical import Hierarchical
from srfca.methods.local import Local
from srfca.methods.one_shot_kmeans import OneShotKMeans
from srfca.methods.oracle import Oracle
from srfca.methods.pacfl import PACFL
from srfca.methods.result import Result
from srfca.methods.robust import RobustGlobal
from srfca.methods.sr_fca import SRFCA

__all__ = [
    "CFL",
    "FedProx",
    "Global",
    "Hierarchical",
    "Local",
    "Method",
    "OneShotKMeans",
    "Oracle",
    "PACFL",
    "Result",
    "RobustGlobal",
    "SRFCA",
]
