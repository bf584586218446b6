"""What ``Method.fit`` is given, checked before anything is computed."""

from __future__ import annotations

from math import prod
from typing import Any

from srfca.data.client_data import ClientData
from srfca.errors import InputError


def require_federation(federation: Any, method: str) -> None:
    """Raise an ``InputError`` that shows what to write, unless a federation is given.

    Args:
        federation: What was given.
        method: The name of the method's class, for the message.
    """
    if hasattr(federation, "ask"):
        return
    if isinstance(federation, ClientData):
        inputs, y = prod(federation.train.x.shape[1:]), federation.train.y
        outputs = prod(y.shape[1:]) if y.is_floating_point() else max(int(y.max()) + 1, 2)
        raise InputError(
            f"{method}.fit takes a federation, which is client data with a model: "
            f"{method}().fit(Simulation(data, models.mlp({inputs}, 64, {outputs}))), after "
            "'from srfca import Simulation, models'"
        )
    raise InputError(
        f"{method}.fit takes a federation, not a {type(federation).__name__}: arrays and tables go "
        f"to srfca.fit(X, y, clients, method={method}()), which makes one"
    )
