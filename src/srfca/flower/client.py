"""The client's side: a ``ClientApp`` that trains and evaluates on the client's data.

A client is a simulation with one client in it. Random draws depend on the client's id, so it
computes what the same client computes in a ``Simulation`` of all clients.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from srfca import progress
from srfca.data.client_data import ClientData
from srfca.engine.augment import Augmentation, AugmentationName
from srfca.engine.loss import Loss, LossName
from srfca.engine.simulation import Simulation
from srfca.errors import require
from srfca.federation.middleware.privacy import Private
from srfca.federation.privacy import NOT_ANSWERED, Privacy
from srfca.federation.protocol import Federation
from srfca.flower.client_state import StoredRows, secret_of
from srfca.flower.client_tasks import PRIVATE_TASKS, TASKS, Receive, Task, TaskInput
from srfca.flower.messages import ALGORITHM, INPUTS, personal_from_json
from srfca.flower.records import ROWS, Shape, arrays_of, make_content, pack, unpack, values_of
from srfca.flower.transport import TRAINING_TASKS

_MAX_LOADED = 128
"""Clients whose data stays loaded in one process, in Flower's simulation."""
_ROLE = "rows."
"""Prefix of the values that hold the names of rows."""


def client_app(
    *,
    model: nn.Module | Callable[[], nn.Module],
    data: Callable[[Context], ClientData],
    receive: Receive | None = None,
    loss: LossName | Loss = "auto",
    augment: AugmentationName | Augmentation = "none",
    validation: float = 0.1,
    device: str = "auto",
    privacy: Privacy | None = None,
    share: int = 0,
) -> ClientApp:
    """Return a complete ``ClientApp`` for every method.

    Args:
        model: As for ``Simulation``; the same model at all clients and the server.
        data: From Flower's context to this client's data: a ``ClientData`` of one client, whose id
            there is its id in the federation. It must return the same data for every message of a
            run; between two refreshes of a serving server they may change.
        receive: Called with the client's final model and Flower's context.
        loss: As for ``Simulation``.
        augment: As for ``Simulation``.
        validation: The fraction of the training samples that is held out.
        device: As for ``Simulation``.
        privacy: Bound what this client reveals: clipping, and noise from a secret that stays here
            (docs/privacy.md). All clients of a federation must have the same settings.
        share: How many of its training samples the client may reveal to the others, for methods
            with shared data (``SharedSamples``); by default none.

    Returns:
        The app: what ``clientapp`` in ``pyproject.toml`` refers to.

    Raises:
        InputError: From the app, if ``data`` returns the data of several clients.

    Examples:
        In the module that ``clientapp`` in ``pyproject.toml`` names::

            from srfca import data, flower, models


            def load(context):
                everyone = data.rotated_digits(num_clients=10)
                return everyone.select(int(context.node_config["partition-id"]))


            app = flower.client_app(model=models.mlp(64, 32, 10), data=load)
    """
    loaded: OrderedDict[tuple[int, int], Simulation] = OrderedDict()

    def load(context: Context) -> Simulation:
        """Return the simulation of a client; its data is loaded once in each process."""
        key = (context.run_id, context.node_id)
        if key not in loaded:
            client_data = data(context)
            require(
                len(client_data) == 1,
                f"data must return the data of one client, not of {len(client_data)}",
            )
            seed = int(context.run_config.get("srfca.seed", 0))
            loaded[key] = Simulation(
                client_data, model, loss=loss, augment=augment, device=device,
                validation=validation, seed=seed,
            )  # fmt: skip
            if len(loaded) > _MAX_LOADED:
                loaded.popitem(last=False)
        return loaded[key]

    app = ClientApp()
    for name, task in TASKS.items():
        register = app.train if name in TRAINING_TASKS else app.query

        def handle(
            message: Message, context: Context, name: str = name, task: Task = task
        ) -> Message:
            require(privacy is None or name in PRIVATE_TASKS, f"{name}: {NOT_ANSWERED}")
            return _handle(load(context), task, message, context, receive, privacy, share)

        register(name)(handle)
    return app


def _handle(
    simulation: Simulation,
    task: Task,
    message: Message,
    context: Context,
    receive: Receive | None,
    privacy: Privacy | None,
    share: int,
) -> Message:
    """Read the rows that a message names, do the task, and reply."""
    federation: Federation = simulation
    if privacy is not None:
        federation = Private(simulation, privacy, secret_of(context.state))
    values = values_of(message.content)
    w0 = simulation.initial_model(0)
    row_bytes = w0.numel() * w0.element_size()
    stored = StoredRows(context.state, row_bytes, arrays_of(message.content, ROWS))
    roles = {
        key.removeprefix(_ROLE): _texts(names)
        for key, names in values.items()
        if key.startswith(_ROLE)
    }
    names = [name for row_names in roles.values() for name in row_names]
    lacking = sorted({name for name in names if name not in stored})
    client_id = simulation.client_ids[0]
    if lacking:
        return Message(make_content({"client": client_id, "lacks": lacking}), reply_to=message)
    rows = {
        role: _read_rows(stored, row_names, _shape(role, values, len(w0)), w0)
        for role, row_names in roles.items()
    }
    with progress.reporting_to(progress.ignore):  # the server may run in this process
        given = TaskInput(values, rows, context, receive, federation, privacy, share)
        output = task(simulation, given)
    stored.keep(names, output.arrays.get("rows") if task is TASKS["train"] else None)
    arrays = {name: pack(tensor) for name, tensor in output.arrays.items()}
    content = make_content({"client": client_id, **output.values}, arrays)
    return Message(content, reply_to=message)


def _shape(role: str, values: Mapping[str, Any], length: int) -> Shape | None:
    """Return the shape that a row of a role must have; tensors of algorithms may have any."""
    if role.startswith(ALGORITHM) or role == INPUTS:
        return None
    if "personal" in values and role != "mixture":
        return (length - len(personal_from_json(values["personal"]).coordinates),)
    return (length,)


def _read_rows(stored: StoredRows, names: list[str], shape: Shape | None, w0: Tensor) -> Tensor:
    """Return rows by name: ``[k, *shape]``."""
    dtype = None if shape is None else w0.dtype
    return torch.stack([unpack(stored[name], shape, dtype) for name in names]).to(w0.device)


def _texts(values: Any) -> list[str]:
    return [str(value) for value in values]
