"""Sizes of a model that follow from the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from math import prod
from typing import Any

import torch
from torch import nn

from srfca.data import ClientData, Samples
from srfca.errors import InputError, require, unknown
from srfca.fitting.defaults import DEFAULT_HIDDEN
from srfca.models import MODELS


def fitting_model(
    model: str | nn.Module | Callable[[], nn.Module], clients: ClientData, **sizes: Any
) -> tuple[nn.Module | Callable[[], nn.Module], ClientData]:
    """Return a model whose sizes follow from the data, and the data as it takes them.

    Args:
        model: A name of ``srfca.models.MODELS``, or a module or factory of the user's.
        clients: The data.
        **sizes: Sizes that do not follow from the data, such as ``hidden``.

    Raises:
        InputError: If there is no model of this name, it does not fit the data, or something else
            is given.
    """
    if isinstance(model, nn.Module) or (callable(model) and not isinstance(model, str)):
        return model, clients
    if not isinstance(model, str):
        raise InputError(
            f"model must be a name ({', '.join(MODELS)}), a module, or a function that returns "
            f"one, not of type {type(model).__name__}"
        )
    if model not in MODELS:
        raise unknown("model", model, MODELS)
    inferred = model_sizes(MODELS[model], model, clients)
    names = {parameter.name for parameter in fields(MODELS[model])}
    given = {name: value for name, value in sizes.items() if name in names}
    return MODELS[model](**(inferred | given)), as_model_takes(clients, inferred)


def as_model_takes(clients: ClientData, sizes: dict[str, Any]) -> ClientData:
    """Return the data with floating-point inputs, if a model of these sizes computes with them."""
    return with_float_inputs(clients) if {"inputs", "channels"} & set(sizes) else clients


def model_sizes(model: Any, name: str, clients: ClientData) -> dict[str, Any]:
    """Return those fields of a model that the data determine.

    Args:
        model: A dataclass that makes modules.
        name: Its name, for error messages.
        clients: The data.

    Returns:
        Sizes by the name of the field.

    Raises:
        InputError: If the model is for images, and the data is not square images.

    Examples:
        >>> from srfca import data, models
        >>> model_sizes(models.MLP, "mlp", data.rotated_digits(num_clients=4))
        {'inputs': 64, 'hidden': (64,), 'outputs': 10}
    """
    names = {parameter.name for parameter in fields(model)}
    shape = tuple(clients.train.x.shape[1:])
    sizes: dict[str, Any] = {}
    if "inputs" in names:
        sizes |= {"inputs": prod(shape)}
        sizes |= {"hidden": DEFAULT_HIDDEN} if "hidden" in names else {}
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

    Args:
        clients: The data.

    Returns:
        At least 1.

    Raises:
        InputError: If classes are not numbered from 0 on.

    Examples:
        >>> from srfca import data
        >>> num_outputs(data.rotated_digits(num_clients=4)), num_outputs(data.synthetic())
        (10, 1)
    """
    y = clients.train.y
    if y.is_floating_point():
        return prod(y.shape[1:])
    if clients.schema is not None and clients.schema.classes:
        return max(len(clients.schema.classes), 2)
    labels = y if clients.test is None else torch.cat([y, clients.test.y])
    low, high = int(labels.min()), int(labels.max())
    require(
        low >= 0 and high < max(len(labels), 2),
        f"y has classes from {low} to {high} in {len(labels)} samples: classes are numbered from 0 "
        "without gaps, and values that are not classes must be floats",
    )
    return max(high + 1, 2)


def with_float_inputs(clients: ClientData) -> ClientData:
    """Return the clients with floating-point inputs, also of new tables that are encoded.

    Args:
        clients: The data.

    Returns:
        The same clients; their test data is converted too.

    Examples:
        >>> from srfca import ClientData
        >>> x, y = torch.arange(6).view(3, 2), torch.zeros(3)
        >>> with_float_inputs(ClientData.from_arrays([(x, y)])).train.x.dtype
        torch.float32
    """

    def convert(samples: Samples) -> Samples:
        return samples if samples.x.is_floating_point() else replace(samples, x=samples.x.float())

    test = None if clients.test is None else convert(clients.test)
    schema = clients.schema
    if schema is not None and schema.dtype in ("int64", "uint8"):
        schema = replace(schema, dtype="float32")
    return replace(clients, train=convert(clients.train), test=test, schema=schema)
