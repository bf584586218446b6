"""A Ray cluster: connecting to it, and how many workers it has room for."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from srfca.errors import InputError, is_number, require, require_positive
from srfca.threads import SPIN_COUNT

_CONNECT_SECONDS = 10.0
"""How long a machine may take to accept a connection."""


def connect(address: str | None = None) -> None:
    """Connect to a Ray cluster, unless this process is connected to one already.

    Ray's usage statistics are off in a cluster that is started here.

    Args:
        address: ``HOST:PORT``, ``ray://HOST:PORT``, or ``local`` for a new cluster on this machine.
            None is the cluster of the environment variable ``RAY_ADDRESS``, else the one that runs
            on this machine, else a new one.

    Raises:
        InputError: If there is no cluster at the address.

    Examples:
        Once in a program, before the first federation::

            connect("10.0.0.1:6379")
    """
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as Ray will do by itself
    place = address or os.environ.get("RAY_ADDRESS", "")
    try:
        _require_listening(place)
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, OSError, RuntimeError) as error:
        raise InputError(
            f"there is no Ray cluster at {place!r}: start one ('ray start --head'), or give its "
            f"address, HOST:PORT ({error})"
        ) from error


def _require_listening(address: str) -> None:
    """Raise an ``OSError`` if nothing listens at ``HOST:PORT``; Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        with socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS):
            pass


@dataclass(frozen=True)
class Node:
    """What a machine of the cluster offers to workers."""

    cpus: float
    gpus: float


@dataclass(frozen=True)
class Room:
    """How many workers there are, and what each of them gets.

    Args:
        workers: How many.
        cpus: CPUs of each; its number of threads.
        gpus: GPUs of each.
        options: More options of Ray's actors, such as ``runtime_env`` or ``resources``.
    """

    workers: int
    cpus: float
    gpus: float
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """Threads of each worker."""
        return max(1, int(self.cpus))

    def actor_options(self) -> dict[str, Any]:
        """Return the options of an actor, whose idle threads sleep (``limit_spinning``)."""
        needs = {"num_cpus": self.cpus, "num_gpus": self.gpus}
        chosen = {"scheduling_strategy": "SPREAD"} | needs | dict(self.options)
        environment = dict(chosen.get("runtime_env") or {})
        variables = {"GOMP_SPINCOUNT": str(SPIN_COUNT)} | environment.get("env_vars", {})
        return chosen | {"runtime_env": environment | {"env_vars": variables}}


def nodes() -> list[Node]:
    """Return the machines of the cluster."""
    alive = (node["Resources"] for node in ray.nodes() if node["Alive"])
    return [
        Node(float(resources.get("CPU", 0)), float(resources.get("GPU", 0))) for resources in alive
    ]


def find_room(
    machines: Sequence[Node],
    workers: int | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> Room:
    """Decide how many workers there are, and what each gets.

    Args:
        machines: Machines of the cluster.
        workers: How many; None is one for each GPU, or one for each machine if there are none.
        cpus: CPUs of each worker; None is as many as there are for it.
        gpus: GPUs of each worker; None is one if there are enough, else none.
        options: More options of Ray's actors.

    Raises:
        InputError: If the machines do not have room for them.

    Examples:
        >>> find_room([Node(8, 0), Node(4, 0)])
        Room(workers=3, cpus=4, gpus=0.0, options={})
        >>> find_room([Node(8, 2), Node(8, 2)])
        Room(workers=4, cpus=4, gpus=1.0, options={})
        >>> find_room([Node(2, 0)], workers=2)
        Room(workers=2, cpus=1, gpus=0.0, options={})
        >>> find_room([Node(2, 0)], workers=3)
        Traceback (most recent call last):
        srfca.errors.InputError: the cluster has no room for 3 workers of 1 CPUs and 0 GPUs: it \
has 1 machines with 2 CPUs and 0 GPUs
    """
    if workers is not None:
        require_positive(actors=workers)
    for name, amount in (("num_cpus", cpus), ("num_gpus", gpus)):
        require(
            amount is None or (is_number(amount) and 0 <= amount <= sys.float_info.max),
            f"{name} must be a number of at least 0, not {amount!r}",
        )
    require(
        options is None or isinstance(options, Mapping),
        f"actor_options must be a mapping, such as {{'resources': {{'fast': 1}}}}, not {options!r}",
    )
    total = sum(int(machine.gpus) for machine in machines)
    if gpus is None:
        gpus = 1.0 if total >= (workers or 1) else 0.0
    if cpus is None:
        cpus = _most_cpus(machines, workers, gpus)
    fitting = sum(_capacity(machine, cpus, gpus) for machine in machines)
    wanted = workers or max(1, fitting)
    require(
        fitting >= wanted,
        f"the cluster has no room for {wanted} workers of {cpus:g} CPUs and {gpus:g} GPUs: it has "
        f"{len(machines)} machines with {sum(m.cpus for m in machines):g} CPUs and {total} GPUs",
    )
    return Room(wanted, cpus, gpus, dict(options or {}))


def _most_cpus(machines: Sequence[Node], workers: int | None, gpus: float) -> int:
    """Return the CPUs of each worker if the machines are shared among as many as are wanted."""
    usable = [machine for machine in machines if machine.cpus >= 1]
    if gpus:
        usable = [machine for machine in usable if machine.gpus >= gpus]
        shares = [int(machine.cpus // (machine.gpus // gpus)) for machine in usable]
        return max(1, min(shares, default=1))
    if workers is None:
        return max(1, min((int(machine.cpus) for machine in usable), default=1))
    largest = max((int(machine.cpus) for machine in usable), default=1)
    for cpus in range(largest, 1, -1):
        if sum(_capacity(machine, cpus, 0) for machine in usable) >= workers:
            return cpus
    return 1


def _capacity(machine: Node, cpus: float, gpus: float) -> int:
    """Return how many workers a machine has room for."""
    limits = [machine.cpus // cpus] if cpus else []
    limits += [machine.gpus // gpus] if gpus else []
    return int(min(limits)) if limits else 1
