"""The client's side: a ``ClientApp`` that trains and evaluates on its own data.

A client is a simulation of itself alone. It draws by its own id, so it does what the same client
does in a ``Simulation`` of all.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from srfca._version import __version__
from srfca.data.client_data import ClientData
from srfca.errors import require
from srfca.federation.augment import Augmentation
from srfca.federation.base import Focus, Mixture, Sample, Split, Work
from srfca.federation.loss import Loss
from srfca.federation.optimizer import Kept
from srfca.federation.simulation import Simulation
from srfca.flower.records import (
    ROWS,
    Value,
    arrays_of,
    content,
    name_of,
    pack,
    unpack,
    values_of,
)
from srfca.flower.shelf import Shelf
from srfca.random import Key

_SHELF, _KEPT, _MODEL = "srfca.shelf", "srfca.kept", "srfca.model"
_AWAKE = 128
"""Clients of one process whose data stay loaded, in Flower's simulation."""

Receive = Callable[[nn.Module, Context], None]
"""Is given the model that the client ends up with."""


def client_app(
    *,
    model: nn.Module | Callable[[], nn.Module],
    data: Callable[[Context], ClientData],
    receive: Receive | None = None,
    loss: str | Loss = "auto",
    augment: str | Augmentation = "none",
    validation: float = 0.1,
    device: str = "auto",
) -> ClientApp:
    """A complete ``ClientApp`` for every method.

    Args:
        model: As of ``Simulation``, the same for all clients and the server.
        data: From Flower's context to this client's data: a ``ClientData`` of one client, whose id
            there is its name in the federation. It must not change from message to message, but
            for new data between two refreshes, where every message meets a new process.
        receive: Called with the model that the client ends up with.
        loss: As of ``Simulation``.
        augment: As of ``Simulation``.
        validation: The fraction of the training samples that is held out.
        device: As of ``Simulation``.
    """
    awake: OrderedDict[tuple[int, int], Simulation] = OrderedDict()

    def wake(context: Context) -> Simulation:
        """The client alone, its data loaded once in a process."""
        who = (context.run_id, context.node_id)
        if who not in awake:
            held = data(context)
            require(len(held) == 1, f"data must be of one client, not of {len(held)}")
            seed = int(context.run_config.get("srfca.seed", 0))
            awake[who] = Simulation(
                held, model, loss=loss, augment=augment, device=device,
                validation=validation, seed=seed,
            )  # fmt: skip
            if len(awake) > _AWAKE:
                awake.popitem(last=False)
        return awake[who]

    app = ClientApp()
    for task, answer in ANSWERS.items():
        register = app.train if task in ("fit", "gradients") else app.query

        def handle(message: Message, context: Context, answer: Answer = answer) -> Message:
            return _handle(wake(context), answer, message, context, receive)

        register(task)(handle)
    return app


@dataclass(frozen=True)
class Asked:
    """What a client is asked, checked: values, and models by their part in the question."""

    values: Mapping[str, Any]
    rows: Mapping[str, Tensor]
    context: Context
    receive: Receive | None

    @property
    def mixture(self) -> Mixture | None:
        """The mixture of models, where there is one: ``weights`` are those of each task."""
        if "mixture" not in self.rows:
            return None
        models = self.rows["mixture"]
        weights = torch.tensor(self.values["weights"], dtype=torch.float64)
        return Mixture(models, weights.view(-1, len(models)).to(models))


@dataclass(frozen=True)
class Told:
    """What a client answers."""

    arrays: Mapping[str, Tensor]
    values: Mapping[str, Value]


Answer = Callable[[Simulation, Asked], Told]


def _handle(
    alone: Simulation,
    answer: Answer,
    message: Message,
    context: Context,
    receive: Receive | None,
) -> Message:
    """Find the models that the question names, answer it, and remember what is on the shelf."""
    values = values_of(message.content)
    w0 = alone.initial(0)
    row_bytes = w0.numel() * w0.element_size()
    state = context.state
    has = dict(state.array_records.get(_SHELF) or {})
    order = state.config_records.get(_SHELF + ".order") or ConfigRecord()
    shelf = Shelf(row_bytes, _texts(order, "names"))
    has.update(arrays_of(message.content, ROWS))
    roles = {name.removeprefix("rows."): name for name in values if name.startswith("rows.")}
    wanted = [name for role in roles.values() for name in _texts(values, role)]
    lacks = sorted(set(wanted) - set(has))
    identity: dict[str, Value] = {"client": alone.clients[0]}
    if lacks:
        return Message(content({**identity, "lacks": lacks}), reply_to=message)
    rows = {
        role: torch.stack(
            [unpack(has[name], tuple(w0.shape), w0.dtype) for name in _texts(values, key)]
        ).to(w0.device)
        for role, key in roles.items()
    }
    told = answer(alone, Asked(values, rows, context, receive))
    shelf.put(wanted)
    arrays = {name: pack(tensor) for name, tensor in told.arrays.items()}
    if answer is _fit:
        for row in told.arrays["rows"]:
            own = pack(row)
            has[name_of(own)] = own
            shelf.put([name_of(own)])
    state[_SHELF] = ArrayRecord({name: has[name] for name in shelf.names})
    state[_SHELF + ".order"] = ConfigRecord({"names": list(shelf.names)})
    return Message(content({**identity, **told.values}, arrays), reply_to=message)


def _texts(values: Mapping[str, Any], key: str) -> list[str]:
    found = values.get(key, [])
    return [str(each) for each in found]


def _hello(alone: Simulation, asked: Asked) -> Told:
    sizes: dict[str, Value] = {split: int(alone.sizes_of(split)[0]) for split in alone.splits}
    w0 = alone.initial(0)
    classes = not alone.data.train.y.is_floating_point()
    about: dict[str, Value] = {
        "version": __version__,
        "length": w0.numel(),
        "dtype": str(w0.dtype).removeprefix("torch."),
        "features": alone.data.train.x[0].numel(),
        "classes": classes,
        "receives": asked.receive is not None,
    }
    return Told({}, {**sizes, **about})


def _fit(alone: Simulation, asked: Asked) -> Told:
    work = Work(**json.loads(asked.values["work"]))
    key = Key(*json.loads(asked.values["key"]))
    starts = asked.rows["starts"]
    focus = None
    if (mixture := asked.mixture) is not None:
        focus = Focus(mixture, torch.tensor(asked.values["component"]))
    if work.keep_state:
        alone.trainings = _restored(asked.context.state, alone.device)
    rows = alone.fit(
        starts, [0] * len(starts), work, key, anchors=asked.rows.get("anchors"), focus=focus
    )
    if work.keep_state:
        _keep(asked.context.state, alone)
    return Told({"rows": rows}, {})


def _gradients(alone: Simulation, asked: Asked) -> Told:
    at = asked.rows["at"]
    return Told({"rows": alone.gradients(at, [0] * len(at))}, {})


def _losses(alone: Simulation, asked: Asked) -> Told:
    """Training losses ``[k]``, held-out losses and accuracies ``[k, 2]``: soon wanted as well."""
    models, values = asked.rows["models"], asked.values
    sample = Sample(values["samples"], values["seed"]) if "samples" in values else None
    found = {"losses": _bad_if_nan(alone.losses(models, [0], sample=sample)[:, 0])}
    if "validation" in alone.splits:
        found["validation"] = _scored(alone, models, "validation")
    return Told(found, {})


def _scores(alone: Simulation, asked: Asked) -> Told:
    predictors = asked.mixture or asked.rows["models"]
    return Told({"scores": _scored(alone, predictors, asked.values["split"])}, {})


def _scored(alone: Simulation, predictors: Tensor | Mixture, split: Split) -> Tensor:
    scores = alone.scores(predictors, [0] * len(predictors), split)
    accuracy = torch.zeros_like(scores.loss) if scores.accuracy is None else scores.accuracy
    return torch.stack([_bad_if_nan(scores.loss), accuracy.double()], dim=1)


def _bad_if_nan(losses: Tensor) -> Tensor:
    """A model whose loss is not a number, since it is too large, is as bad as one can be."""
    return losses.double().masked_fill(losses.isnan(), torch.inf)


def _shares(alone: Simulation, asked: Asked) -> Told:
    return Told({"shares": alone.shares(asked.mixture or asked.rows["models"], [0]).double()}, {})


def _subspaces(alone: Simulation, asked: Asked) -> Told:
    return Told({"subspaces": alone.subspaces([0], asked.values["rank"]).double()}, {})


def _keep_model(alone: Simulation, asked: Asked) -> Told:
    row = asked.rows["models"][0]
    asked.context.state[_MODEL] = ArrayRecord({"row": pack(row)})
    if asked.receive is not None:
        asked.receive(alone.module(row).cpu(), asked.context)
    return Told({}, {})


ANSWERS: dict[str, Answer] = {
    "hello": _hello,
    "fit": _fit,
    "gradients": _gradients,
    "losses": _losses,
    "scores": _scores,
    "shares": _shares,
    "subspaces": _subspaces,
    "keep": _keep_model,
}
"""What a client can be asked."""


def _keep(state: RecordDict, alone: Simulation) -> None:
    """Write down what the optimisers keep: the next message may meet another process."""
    arrays: dict[str, Array] = {}
    trainings = []
    for at, ((seed, purpose), tasks) in enumerate(alone.trainings.items()):
        kept = []
        for (_, component), one in tasks.items():
            shapes = {}
            for moment, tensor in one.moments.items():
                shapes[moment] = list(tensor.shape)
                arrays[f"{at}.{component}.{moment}"] = pack(tensor)
            kept.append({"component": component, "steps": one.steps, "moments": shapes})
        trainings.append({"seed": seed, "purpose": purpose, "tasks": kept})
    state[_KEPT] = ArrayRecord(arrays)
    state[_KEPT + ".about"] = ConfigRecord({"trainings": json.dumps(trainings)})


def _restored(
    state: RecordDict, device: torch.device
) -> dict[tuple[int, str], dict[tuple[int, int], Kept]]:
    """What ``_keep`` wrote."""
    about = state.config_records.get(_KEPT + ".about")
    if about is None:
        return {}
    arrays = state.array_records[_KEPT]
    found = {}
    for at, training in enumerate(json.loads(str(about["trainings"]))):
        tasks = {}
        for task in training["tasks"]:
            moments = {}
            for moment, shape in task["moments"].items():
                array = arrays[f"{at}.{task['component']}.{moment}"]
                dtype = getattr(torch, array.dtype)
                moments[moment] = unpack(array, tuple(shape), dtype).to(device)
            tasks[0, int(task["component"])] = Kept(int(task["steps"]), moments)
        found[int(training["seed"]), str(training["purpose"])] = tasks
    return found
