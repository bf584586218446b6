"""Methods: what the server does. One file each."""

from srfca.methods.fedavg import Global
from srfca.methods.local import Local
from srfca.methods.result import Result
from srfca.methods.sr_fca import SRFCA

__all__ = ["SRFCA", "Global", "Local", "Result"]
