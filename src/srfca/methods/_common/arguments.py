"""What ``Method.fit`` is given, checked before anything is computed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import prod
from typing import Any

from srfca.data.client_data import ClientData
from srfca.errors import InputError, SrfcaWarning, require
from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import LocalTraining
from srfca.federation.protocol import Federation

MAX_SHARE = 0.5
"""Clusters per client that make sense: with more, most clusters have one client."""
FEW_CLUSTERS = 4
"""As many are tried with few clients too."""
SERVER_SETTINGS = ("server_momentum", "average_last")
"""Settings of local training that the server of a method has to follow."""


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


def check_compression(local: LocalTraining, federation: Federation) -> None:
    """Raise an error if updates are to be compressed, but a model has buffers.

    Args:
        local: How clients train.
        federation: The clients.
    """
    if local.compress is None:
        return
    buffers = len(federation.initial_model(0)) - len(Coordinates.trained(federation.layers))
    require(
        buffers == 0,
        f"compress={local.compress} is for models without buffers, such as BatchNorm's, but this "
        f"one has {buffers} numbers in buffers: leave compress out, or use GroupNorm",
    )


def check_number_of_clusters(k: int | None, num_clients: int) -> None:
    """Raise an error if there are more clusters than clients, and warn if there are nearly as many.

    Args:
        k: The number of clusters; None if the method is not given one.
        num_clients: m
    """
    if k is None:
        return
    require(
        k <= num_clients,
        f"k={k} is more than the {num_clients} clients: choose a k far below {num_clients}",
    )
    if k > max(FEW_CLUSTERS, MAX_SHARE * num_clients):
        warnings.warn(
            f"k={k} clusters of {num_clients} clients have fewer than two clients on average: "
            f"choose a k far below {num_clients}",
            SrfcaWarning,
            stacklevel=3,
        )


def check_server_settings(name: str, local: LocalTraining, followed: Sequence[str]) -> None:
    """Raise an error if local training has a setting for the server that a method ignores.

    Args:
        name: The method.
        local: How clients train.
        followed: The settings among ``SERVER_SETTINGS`` that the method follows.

    Raises:
        InputError: If another one is set.

    Examples:
        >>> check_server_settings("FedAvg", LocalTraining(average_last=0.2), ["average_last"])
    """
    for setting in SERVER_SETTINGS:
        value = getattr(local, setting)
        require(
            value == 0 or setting in followed,
            f"{name} does nothing with {setting}, so it must be 0, not {value}: leave it out",
        )
