"""An experiment from a user's own data, and a model of ours or of theirs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from hashlib import sha256
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn

from srfca import data, models
from srfca.data import ClientData
from srfca.errors import InputError, require, unknown
from srfca.experiments.config import METHODS, Experiment

WORK = {"steps": 200, "local_steps": 5, "batch_size": 20, "optimizer": "adam", "lr": 0.005}
"""How clients train unless they are told otherwise."""
HIDDEN = (64,)


def own(path: str | Path, model: str = "mlp") -> Experiment:
    """The experiment of a file or folder of data and a model: a name, or ``MODULE:FACTORY``."""
    path = Path(path)
    clients = data.load(path)
    sections: dict[str, dict[str, Any]] = {method: {} for method in METHODS.keys()}
    sections |= {"data": {"name": str(path)}, "model": {"name": model}}
    sections |= {"federation": {}, "local_training": dict(WORK)}
    made: dict[str, Callable[..., Any]] = {}
    if ":" in model:
        factory = imported(model)
        made["model"] = lambda: factory
    elif model in models.MODELS:
        sizes = model_sizes(models.MODELS[model], model, clients)
        sections["model"] |= sizes
        if {"inputs", "channels"} & set(sizes):
            clients = with_float_inputs(clients)
    else:
        raise unknown("model", model, [*models.MODELS, "MODULE:FACTORY"])

    def given(*, seed: int = 0) -> ClientData:
        return clients

    return Experiment(
        name=path.resolve().name,
        description=str(clients),
        clusters="unknown" if clients.truth is None else str(clients.truth.num_clusters),
        sections=sections,
        made=made | {"data": given},
        fingerprint=fingerprint(clients, model),
        again=partial(own, path, model),
    )


def fingerprint(clients: ClientData, model: str) -> str:
    """A digest of what the clients hold, and of the code that makes a model of the user's own."""
    digest = sha256(clients.fingerprint().encode())
    if ":" in model:
        for file in sorted(sources(model)):
            digest.update(Path(file).read_bytes())
    return digest.hexdigest()


def sources(model: str) -> set[str]:
    """The files of the package, or module, of ``MODULE:FACTORY``, and of its layers' classes."""
    name, _, attribute = model.partition(":")
    package = name.partition(".")[0]
    beside = {
        found.__name__: found
        for found in list(sys.modules.values())
        if getattr(found, "__name__", "").partition(".")[0] == package
    }
    made: nn.Module = getattr(sys.modules[name], attribute)()
    layers = {type(part).__module__: sys.modules[type(part).__module__] for part in made.modules()}
    ours = {where: found for where, found in layers.items() if where.partition(".")[0] != "torch"}
    files = [getattr(found, "__file__", None) for found in (beside | ours).values()]
    return {file for file in files if file is not None and Path(file).is_file()}


def model_sizes(kind: Any, name: str, clients: ClientData) -> dict[str, Any]:
    """Those fields of a model that the data decide."""
    known = {field.name for field in fields(kind)}
    shape = tuple(clients.train.x.shape[1:])
    sizes: dict[str, Any] = {}
    if "inputs" in known:
        sizes |= {"inputs": prod(shape)}
        sizes |= {"hidden": HIDDEN} if "hidden" in known else {}
    if "channels" in known:
        require(
            len(shape) in (2, 3) and shape[-1] == shape[-2],
            f"{name} takes square images [height, width] or [channels, height, width], "
            f"but x has samples of shape {shape}",
        )
        sizes |= {"channels": shape[0] if len(shape) == 3 else 1}
        sizes |= {"size": shape[-1]} if "size" in known else {}
    outputs = {"outputs", "classes"} & known
    return sizes | {field: number_of_outputs(clients) for field in outputs}


def number_of_outputs(clients: ClientData) -> int:
    """One for each class, and two or more, where targets are whole; else one for each value."""
    y = clients.train.y
    if y.is_floating_point():
        return prod(y.shape[1:])
    labels = y if clients.test is None else torch.cat([y, clients.test.y])
    low, high = int(labels.min()), int(labels.max())
    require(
        low >= 0 and high < max(len(labels), 2),
        f"y has classes from {low} to {high} in {len(labels)} samples: classes are numbered from 0 "
        "without gaps, and values that are not classes must be floats",
    )
    return max(high + 1, 2)


def with_float_inputs(clients: ClientData) -> ClientData:
    """The same clients with floating-point x."""

    def converted(part: data.Samples) -> data.Samples:
        return part if part.x.is_floating_point() else replace(part, x=part.x.float())

    test = None if clients.test is None else converted(clients.test)
    return replace(clients, train=converted(clients.train), test=test)


def imported(name: str) -> Callable[[], nn.Module]:
    """The model of ``MODULE:FACTORY``, from a module of the current folder or one installed."""
    module, _, attribute = name.partition(":")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        missing = f"there is no module {error.name!r}, neither in {folder} nor installed"
        raise InputError(f"model {name!r}: {missing}") from error
    except Exception as error:  # whatever the user's own code does
        raise InputError(f"model {name!r}: {_what(error)} when {module!r} is imported") from error
    factory: Any = getattr(found, attribute, None)
    require(factory is not None, f"model {name!r}: {module!r} has nothing named {attribute!r}")
    require(
        callable(factory) and not isinstance(factory, nn.Module),
        f"model {name!r}: must be a class or function that makes a torch.nn.Module, "
        f"but is a {type(factory).__name__}",
    )
    try:
        made: Any = factory()
    except Exception as error:
        raise InputError(f"model {name!r}: {_what(error)} when it is called") from error
    require(
        isinstance(made, nn.Module),
        f"model {name!r}: must make a torch.nn.Module, but makes a {type(made).__name__}",
    )
    checked: Callable[[], nn.Module] = factory
    return checked


def _what(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
