"""Methods: what the server does. One file each.

Every registered method can be imported from here by the name of its class:
``from srfca.methods import IFCA``.
"""

from __future__ import annotations

from typing import Any

from srfca.methods._common.base import Answer, Method
from srfca.methods._common.curve import CurvePoint
from srfca.methods._common.monitor import Monitor, Monitors, RoundEnd, RunStart
from srfca.methods._common.result import Result
from srfca.methods._common.run import Run
from srfca.methods._common.stage import Stage
from srfca.methods.registry import METHODS, all_methods, register

__all__ = [
    "METHODS",
    "Answer",
    "CurvePoint",
    "Method",
    "Monitor",
    "Monitors",
    "Result",
    "RoundEnd",
    "Run",
    "RunStart",
    "Stage",
    "all_methods",
    "register",
]


def __getattr__(name: str) -> Any:
    """Return a registered method by the name of its class."""
    if not name.startswith("_"):
        for method in METHODS.items().values():
            if method.__name__ == name:
                return method
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(method.__name__ for method in METHODS.items().values())])
