"""Methods: what the server does. One file each."""

from srfca.methods.base import Method
from srfca.methods.ditto import Ditto
from srfca.methods.fedavg import Global
from srfca.methods.fedem import FedEM
from srfca.methods.fedgroup import FedGroup
from srfca.methods.fedprox import FedProx
from srfca.methods.fedsoft import FedSoft
from srfca.methods.local import Local
from srfca.methods.mocha import MOCHA
from srfca.methods.fesem import FeSEM
from srfca.methods.hypcluster import HypCluster
from srfca.methods.ifca import IFCA
from srfca.methods.local import Local
from srfca.methods.one_shot_ifca import OneShotIFCA
from srfca.methods.oracle import Oracle
from srfca.methods.result import Result
from srfca.methods.robust import RobustGlobal
from srfca.methods.sr_fca import SRFCA

__all__ = [
    "FedEM",
    "FedProx",
    "FedSoft",
    "Global",
    "Local",
    "Ditto",
    "FedGroup",
    "MOCHA",
    "Method",
    "FeSEM",
    "FedProx",
    "Global",
    "HypCluster",
    "IFCA",
    "Local",
    "Method",
    "OneShotIFCA",
    "Oracle",
    "Result",
    "RobustGlobal",
    "SRFCA",
]
