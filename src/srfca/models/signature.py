"""What a model takes, and what its outputs mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from srfca.errors import InputError, require

LossKind = Literal["cross_entropy", "squared_error", "custom"]
"""The loss that a model was trained with; ``custom`` is a callable."""


@dataclass(frozen=True)
class Signature:
    """Inputs and targets of a model.

    Args:
        input_shape: Shape of one sample's input, such as ``(3, 32, 32)``.
        input_dtype: Type of the inputs, such as ``float32``.
        target_shape: Shape of one sample's target, ``()`` for one number or one class.
        has_classes: Whether targets are classes.
        loss: What the model was trained with.

    Examples:
        >>> signature = Signature((4,), "float32", (), True, "cross_entropy")
        >>> signature.predictions(torch.tensor([[0.1, 2.0], [3.0, 0.2]]))
        tensor([1, 0])
    """

    input_shape: tuple[int, ...]
    input_dtype: str
    target_shape: tuple[int, ...]
    has_classes: bool
    loss: LossKind

    @classmethod
    def of(cls, x: Tensor, y: Tensor, loss: LossKind) -> Signature:
        """Return the signature of a model that is trained on inputs and targets ``[n, ...]``.

        Args:
            x: ``[n, ...]``
            y: ``[n, ...]``
            loss: ``cross_entropy``, ``squared_error`` or ``custom``.
        """
        return cls(
            input_shape=tuple(x.shape[1:]),
            input_dtype=dtype_name(x.dtype),
            target_shape=tuple(y.shape[1:]),
            has_classes=not y.is_floating_point(),
            loss=loss,
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Signature:
        """Return what ``to_json`` describes.

        Args:
            content: What ``to_json`` returned.

        Raises:
            InputError: If an entry is missing or not allowed.
        """
        try:
            signature = cls(
                input_shape=tuple(content["input_shape"]),
                input_dtype=content["input_dtype"],
                target_shape=tuple(content["target_shape"]),
                has_classes=content["has_classes"],
                loss=content["loss"],
            )
        except (LookupError, TypeError) as error:
            raise InputError(f"a model's signature is damaged: {error!r}") from error
        sizes = (*signature.input_shape, *signature.target_shape)
        require(
            all(isinstance(size, int) and size >= 0 for size in sizes)
            and isinstance(signature.has_classes, bool)
            and signature.loss in get_args(LossKind),
            f"a model's signature is damaged: {signature}",
        )
        dtype_named(signature.input_dtype)
        return signature

    def to_json(self) -> dict[str, Any]:
        """Return the signature, ready for JSON."""
        return asdict(self)

    @property
    def averages_probabilities(self) -> bool:
        """Whether a mixture of models averages probabilities; otherwise it averages outputs."""
        return self.loss == "cross_entropy"

    def predictions(self, outputs: Tensor) -> Tensor:
        """Return classes or values ``[n, ...]`` of a model's outputs ``[n, ...]``.

        Classes are those that the accuracy counts. Outputs that do not fit the targets are
        returned as they are.

        Args:
            outputs: ``[n, ...]``
        """
        shape = torch.Size((len(outputs), *self.target_shape))
        if self.has_classes:
            classes = predicted_classes(outputs, shape)
            return outputs if classes is None else classes
        return outputs.reshape(shape) if outputs.numel() == shape.numel() else outputs

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return probabilities ``[n, classes, ...]`` of a model's outputs.

        Args:
            outputs: ``[n, classes, ...]``

        Returns:
            ``[n, classes, ...]``

        Raises:
            InputError: If the model was not trained with cross entropy.
        """
        require(
            self.averages_probabilities,
            f"probabilities need a model that was trained with cross entropy, not with a loss that "
            f"is {self.loss}: use predict, or the outputs of module",
        )
        return outputs.softmax(1)


def predicted_classes(outputs: Tensor, shape: torch.Size) -> Tensor | None:
    """Return the classes that outputs predict, None if the outputs have another shape.

    Outputs ``[n, classes, ...]`` predict the class of the largest one. A single output, or one for
    each target, predicts 1 if it is positive, else 0.

    Args:
        outputs: ``[n, ...]``
        shape: Shape of the targets, ``[n, ...]``.
    """
    single = outputs.ndim == len(shape) + 1 and outputs.shape[1] == 1
    scores = outputs.squeeze(1) if single else outputs
    if scores.shape == shape:
        return (scores > 0).long()
    if outputs.ndim != len(shape) + 1:
        return None
    classes = outputs.argmax(1)
    return classes if classes.shape == shape else None


def mixed_outputs(outputs: Tensor, log_weights: Tensor, averages_probabilities: bool) -> Tensor:
    """Return the outputs of a mixture of models: ``[n, ...]``.

    Args:
        outputs: ``[k, n, ...]`` of each model.
        log_weights: Logarithms of the models' weights, of a shape that fits the outputs'.
        averages_probabilities: Average the probabilities and return their logarithms, which are
            logits as well; otherwise average the outputs.
    """
    if averages_probabilities:
        return (outputs.log_softmax(2) + log_weights).logsumexp(0)
    return (outputs * log_weights.exp()).sum(0)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a type, such as ``float32``."""
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    """Return the type of a name.

    Raises:
        InputError: If there is none.
    """
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise InputError(f"{name!r} is not a type of tensors")
    return dtype
