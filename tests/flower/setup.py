"""A small federation over Flower's grid in this process, the same one simulated, and faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from torch import Tensor, nn

from srfca import SRFCA, ClientData, LocalTraining, Partition, Simulation, models
from srfca.federation import Train
from srfca.flower import FlowerFederation, client_app, server_app
from srfca.flower.records import ARRAYS, pack
from srfca.random import Key
from tests import examples
from tests.flower.grid import LocalGrid

M = 8
EVERYONE = np.arange(M)
DATA = examples.mixed_labels([1.0, 0.0] * (M // 2), n=40)
MODEL = models.linear(6, 4)
LOCAL = LocalTraining(steps=12, local_steps=4, batch_size=10, lr=0.5)
SR_FCA = SRFCA(local=LOCAL, threshold="45%", merge_threshold="auto", refine_steps=1)

Fault = Callable[[int, Message], object]


def load_data(context: Context) -> ClientData:
    return DATA.select(int(context.node_config["partition-id"]))


def make_app(**options: Any) -> Any:
    defaults: dict[str, Any] = {"model": MODEL, "data": load_data, "device": "cpu", "share": 40}
    return client_app(**defaults | options)


class FreshProcess:
    """A ClientApp that is made again for every message, like one that has a process for each."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __call__(self, message: Message, context: Context) -> Message:
        reply: Message = make_app(**self.options)(message, context)
        return reply


def make_grid(partitions: Any = range(M), **options: Any) -> LocalGrid:
    return LocalGrid(make_app(**options), partitions)


def make_federation(grid: LocalGrid | None = None, **options: Any) -> FlowerFederation:
    arguments: dict[str, Any] = {"model": MODEL, "num_clients": M} | options
    return FlowerFederation(grid or make_grid(), **arguments)


def make_simulation(model: Any = MODEL) -> Simulation:
    return Simulation(DATA, model, device="cpu")


def train_request(starts: Tensor, round: int = 0, **options: Any) -> Train:
    """Return a training of all clients; ``starts`` ``[P]`` or ``[m, P]``."""
    return Train(EVERYONE, starts.expand(M, -1), LOCAL, Key(0, "x", round), **options)


def run_app(grid: LocalGrid, config: dict[str, Any], **options: Any) -> None:
    """Run a server app with a run config; keys lack the prefix ``srfca.``."""
    context = Context(
        run_id=1, node_id=0, node_config={}, state=RecordDict(),
        run_config={f"srfca.{key}": value for key, value in config.items()},
    )  # fmt: skip
    arguments: dict[str, Any] = {"model": MODEL, "method": SR_FCA} | options
    server_app(**arguments)(grid, context)


def is_correct(labels: np.ndarray, clients: list[int]) -> bool:
    """Return whether some clients are clustered like the truth."""
    assert DATA.truth is not None
    return Partition(labels[clients]) == Partition(DATA.truth.labels[clients])


def no_fault(partition: int, message: Message) -> object:
    return None


def no_reply(kind: str, *partitions: int) -> Fault:
    """Return a fault: some clients do not reply to messages of one kind."""

    def fault(partition: int, message: Message) -> object:
        return ... if partition in partitions and message.metadata.message_type == kind else None

    return fault


def raising(kind: str, *partitions: int) -> Fault:
    """Return a fault: some clients raise an error at messages of one kind."""

    def fault(partition: int, message: Message) -> object:
        fails = partition in partitions and message.metadata.message_type == kind
        return RuntimeError("out of luck") if fails else None

    return fault


def change_replies(
    grid: LocalGrid, partition: int, kind: str, change: Callable[[Message], object]
) -> None:
    """Let a client change its replies to messages of one kind, in place."""

    def fault(receiver: int, message: Message) -> object:
        if (receiver, message.metadata.message_type) != (partition, kind):
            return None
        [context] = [
            c for c in grid.contexts.values() if c.node_config["partition-id"] == partition
        ]
        reply = grid.app(message, context)
        change(reply)
        return reply

    grid.fault = fault


def scale(name: str, factor: float) -> Callable[[Message], object]:
    """Return a change of a reply: one of its arrays times a factor."""

    def change(reply: Message) -> None:
        arrays = reply.content.array_records[ARRAYS]
        array: Array = arrays[name]
        dtype = getattr(torch, array.dtype)
        numbers = torch.frombuffer(bytearray(array.data), dtype=dtype).view(array.shape)
        reply.content[ARRAYS] = ArrayRecord({**arrays, name: pack(numbers * factor)})

    return change


def store_models(models: dict[int, nn.Module]) -> Callable[[nn.Module, Context], None]:
    """Return a ``receive`` that stores the final models by partition."""

    def receive(module: nn.Module, context: Context) -> None:
        models[int(str(context.node_config["partition-id"]))] = module

    return receive


def row_of(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
