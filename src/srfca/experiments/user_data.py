"""An experiment from a user's data, with one of our models or with the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import torch

from srfca import data, models
from srfca.data import ClientData, Samples
from srfca.errors import require, unknown
from srfca.experiments.experiment import SHARED_SECTIONS, Experiment
from srfca.experiments.source_code import files_digest
from srfca.experiments.user_model import import_model, model_files
from srfca.methods import METHODS

LOCAL_TRAINING = {
    "steps": 200, "local_steps": 5, "batch_size": 20, "optimizer": "adam", "lr": 0.005,
}  # fmt: skip
"""How clients train by default."""
HIDDEN = (64,)
"""Hidden layers of an MLP by default."""


def experiment_from_data(path: str | Path, model: str = "mlp", **options: Any) -> Experiment:
    """Return an experiment on the data of a file or folder.

    Args:
        path: A ``.csv``, ``.parquet`` or ``.npz`` file, or a folder of these.
        model: The name of a model, whose sizes then follow from the data, or ``MODULE:FACTORY``.
        options: Those of ``srfca.data.load``: the names of columns and what is done with them.

    Raises:
        InputError: If the data cannot be read, or the model does not exist or does not fit.
    """
    path = Path(path)
    clients = data.load(path, **options)
    sections: dict[str, dict[str, Any]] = {key: {} for key in (*SHARED_SECTIONS, *METHODS.items())}
    sections |= {"data": {"name": str(path)}, "model": {"name": model}}
    sections |= {"local_training": dict(LOCAL_TRAINING)}
    if ":" in model:
        import_model(model)
    elif model in models.MODELS:
        sizes = model_sizes(models.MODELS[model], model, clients)
        sections["model"] |= sizes
        if {"inputs", "channels"} & set(sizes):
            clients = with_float_inputs(clients)
    else:
        raise unknown("model", model, [*models.MODELS, "MODULE:FACTORY"])
    return Experiment(
        name=path.resolve().name,
        description=str(clients),
        clusters="unknown" if clients.truth is None else str(clients.truth.num_clusters),
        sections=sections,
        user_data=_returning(clients),
        fingerprint=fingerprint(clients, model),
        reload=partial(experiment_from_data, path, model, **options),
    )


def fingerprint(clients: ClientData, model: str) -> str:
    """Return a digest of the clients' data, and of the code of ``MODULE:FACTORY``."""
    digest = sha256(clients.fingerprint().encode())
    if ":" in model:
        digest.update(files_digest(model_files(model)).encode())
    return digest.hexdigest()


def model_sizes(model: Any, name: str, clients: ClientData) -> dict[str, Any]:
    """Return those fields of a model that the data determine.

    Args:
        model: A dataclass that makes modules.
        name: Its name, for error messages.
        clients: The data.

    Raises:
        InputError: If the model is for images, and the data are not square images.
    """
    names = {parameter.name for parameter in fields(model)}
    shape = tuple(clients.train.x.shape[1:])
    sizes: dict[str, Any] = {}
    if "inputs" in names:
        sizes |= {"inputs": prod(shape)}
        sizes |= {"hidden": HIDDEN} if "hidden" in names else {}
    if "channels" in names:
        require(
            len(shape) in (2, 3) and shape[-1] == shape[-2],
            f"{name} takes square images [height, width] or [channels, height, width], "
            f"but x has samples of shape {shape}",
        )
        sizes |= {"channels": shape[0] if len(shape) == 3 else 1}
        sizes |= {"size": shape[-1]} if "size" in names else {}
    outputs = {"outputs", "classes"} & names
    return sizes | {field: num_outputs(clients) for field in outputs}


def num_outputs(clients: ClientData) -> int:
    """Return the number of outputs that targets need.

    Integer targets are classes: one output for each, and at least two. Floating-point targets are
    values: one output for each value of a sample.

    Raises:
        InputError: If classes are not numbered from 0 on.
    """
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
    """Return the clients with floating-point inputs, also of new tables that are encoded."""

    def convert(samples: Samples) -> Samples:
        return samples if samples.x.is_floating_point() else replace(samples, x=samples.x.float())

    test = None if clients.test is None else convert(clients.test)
    schema = clients.schema
    if schema is not None and schema.dtype in ("int64", "uint8"):
        schema = replace(schema, dtype="float32")
    return replace(clients, train=convert(clients.train), test=test, schema=schema)


def _returning(clients: ClientData) -> Callable[..., ClientData]:
    """Return a data set function that returns these clients."""

    def user_data(*, seed: int = 0) -> ClientData:
        return clients

    return user_data
