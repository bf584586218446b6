"""Models in the formats of other programs: safetensors, PyTorch and ONNX."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from logging import ERROR, getLogger
from typing import Literal, get_args

import torch
from safetensors.torch import save
from torch import Tensor, nn

from srfca.errors import InputError, describe, require, unknown
from srfca.models.signature import Signature, dtype_named
from srfca.registry import is_installed

ExportFormat = Literal["safetensors", "torch", "onnx"]
FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
SUFFIXES: Mapping[str, str] = {"safetensors": ".safetensors", "torch": ".pt", "onnx": ".onnx"}
"""Suffix of a file in each format."""
INPUT, OUTPUT = "x", "outputs"
"""Names of the input and the output of an ONNX model."""
_ONNX_PACKAGES = ("onnx", "onnxscript")


def check_format(format: str) -> None:
    """Raise an ``InputError`` if a format is unknown, or a package that it needs is missing."""
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    missing = [name for name in _ONNX_PACKAGES if format == "onnx" and not is_installed(name)]
    require(
        not missing,
        f"the format onnx needs {' and '.join(missing)}: install it with pip install 'srfca[onnx]'",
    )


def state_bytes(state: Mapping[str, Tensor], format: ExportFormat) -> bytes:
    """Return a ``state_dict`` as a file.

    Args:
        state: Tensors by name, none of them sharing memory.
        format: ``safetensors``, or ``torch``: what ``torch.load(file, weights_only=True)`` reads.
    """
    if format == "safetensors":
        contiguous = {name: tensor.contiguous() for name, tensor in state.items()}
        return save(contiguous, metadata={"format": "pt"})
    file = BytesIO()
    torch.save(dict(state), file)
    return file.getvalue()


def onnx_bytes(module: nn.Module, signature: Signature) -> bytes:
    """Return a module as an ONNX file, for any number of samples.

    Its input is named ``x``, and its output ``outputs``: logits, if the model classifies.

    Args:
        module: The module, in evaluation mode on the CPU.
        signature: Shape and type of its inputs.

    Raises:
        InputError: If torch cannot export the module.
    """
    example = torch.zeros(2, *signature.input_shape, dtype=dtype_named(signature.input_dtype))
    try:
        with _quiet():
            program = torch.onnx.export(
                module, (example,), dynamo=True, verbose=False,
                input_names=[INPUT], output_names=[OUTPUT],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )  # fmt: skip
            assert program is not None
            content: bytes = program.model_proto.SerializeToString()
    except Exception as error:  # whatever an exporter raises
        raise InputError(
            f"torch cannot export this model to ONNX: {describe(error)}; export it as safetensors "
            "or torch"
        ) from error
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what torch's exporter says of its own workings, and of torchvision's absence."""
    logger = getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
