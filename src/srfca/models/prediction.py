"""Run a module on inputs, in parts that fit into memory."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from srfca.errors import InputError, describe, require
from srfca.models.signature import Signature, dtype_name, dtype_named

BATCH = 512
"""Samples of a pass."""


def outputs_of(module: nn.Module, x: Tensor | NDArray[Any], signature: Signature) -> Tensor:
    """Return a module's outputs ``[n, ...]`` for inputs ``[n, ...]``.

    Args:
        module: The module, in evaluation mode.
        x: Inputs; numbers are converted to the type that the model was trained on.
        signature: What the model takes.

    Raises:
        InputError: If there are no inputs, one is infinite or NaN, or the module does not take
            samples of this shape.
    """
    inputs = torch.as_tensor(x)
    require(inputs.ndim >= 1 and len(inputs) > 0, "there are no samples to predict")
    require(
        not inputs.is_floating_point() or bool(inputs.isfinite().all()),
        "x has a NaN or an infinity: fill in or remove such samples",
    )
    dtype = dtype_named(signature.input_dtype)
    require(
        dtype.is_floating_point or not inputs.is_floating_point(),
        f"x must be whole numbers ({signature.input_dtype}), as the model was trained on, not "
        f"{dtype_name(inputs.dtype)}",
    )
    inputs = inputs.detach().cpu().to(dtype)
    try:
        with torch.no_grad():
            return torch.cat([module(part) for part in inputs.split(BATCH)])
    except (RuntimeError, ValueError, IndexError) as error:
        raise InputError(
            f"the model does not take x with samples of shape {tuple(inputs.shape[1:])}: it was "
            f"trained on samples of shape {signature.input_shape} ({describe(error)})"
        ) from error
