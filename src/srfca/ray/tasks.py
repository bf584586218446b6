"""Independent pieces of work, spread over a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError

from srfca.ray.cluster import nodes
from srfca.ray.messages import Message, pack, unpack

MAX_RETRIES = 3
"""How often a task is started again if its process or its machine is lost."""

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def run_tasks(
    work: Callable[[Item], Outcome],
    items: Sequence[Item],
    on_result: Callable[[Item, Outcome | Exception], None],
    at_once: int,
    cpus: float = 1.0,
    allow_gpus: bool = True,
) -> None:
    """Call a function for every item, on the machines of the cluster that this process is part of.

    Args:
        work: The function. It is sent to the machines.
        items: What to call it with.
        on_result: Called in this process with each item and its outcome, or the error if it was
            lost or has failed.
        at_once: The most items at a time.
        cpus: CPUs of each task.
        allow_gpus: Give each task a GPU, if the cluster has any.
    """
    gpus = 1.0 if allow_gpus and any(node.gpus >= 1 for node in nodes()) else 0.0
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=MAX_RETRIES)(_work)
    function = ray.put(pack(work))
    waiting, pending = list(items), dict[Any, Item]()
    try:
        while waiting or pending:
            while waiting and len(pending) < at_once:
                item = waiting.pop(0)
                pending[task.remote(function, pack(item))] = item
            [ready], _ = ray.wait(list(pending), num_returns=1)
            item = pending.pop(ready)
            try:
                outcome: Any = unpack(ray.get(ready))
            except RayError as error:
                outcome = error
            on_result(item, outcome)
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _work(function: Message, item: Message) -> Message:
    return pack(unpack(function)(unpack(item)))
