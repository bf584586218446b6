"""Methods: what the server does. One file each."""

from srfca.methods.base import Method
from srfca.methods.cfl import CFL
from srfca.methods.ditto import Ditto
from srfca.methods.fedavg import Global
from srfca.methods.fedem import FedEM
from srfca.methods.fedgroup import FedGroup
from srfca.methods.fedprox import FedProx
from srfca.methods.fedsoft import FedSoft
from srfca.methods.fesem import FeSEM
from srfca.methods.hierarchical import Hierarchical
from srfca.methods.hypcluster import HypCluster
from srfca.methods.ifca import IFCA
from srfca.methods.local import Local
from srfca.methods.mocha import MOCHA
from srfca.methods.one_shot_ifca import OneShotIFCA
from srfca.methods.one_shot_kmeans import OneShotKMeans
from srfca.methods.oracle import Oracle
from srfca.methods.pacfl import PACFL
from srfca.methods.result import Result
from srfca.methods.robust import RobustGlobal
from srfca.methods.sr_fca import SRFCA

__all__ = [
    "SRFCA",
    "Oracle",
    "Local",
    "Global",
    "FedProx",
    "RobustGlobal",
    "IFCA",
    "HypCluster",
    "FeSEM",
    "OneShotKMeans",
    "OneShotIFCA",
    "CFL",
    "Hierarchical",
    "FedGroup",
    "PACFL",
    "FedSoft",
    "FedEM",
    "Ditto",
    "MOCHA",
    "Method",
    "Result",
]
