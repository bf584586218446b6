"""The base class and the registry of local algorithms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.errors import InputError
from srfca.federation.local_training import LocalTraining
from srfca.registry import Registry


class LocalClient(Protocol):
    """One client, as a local algorithm of your own sees it while it trains through autograd.

    Buffers, such as the running statistics of a BatchNorm, belong to the client: calls of ``loss``,
    ``outputs`` and ``gradient`` update them and ignore their coordinates of a row; the trained row
    gets them.

    ``LocalAlgorithm`` has an example.
    """

    @property
    def local(self) -> LocalTraining:
        """How the client trains."""
        ...

    @property
    def steps(self) -> range:
        """The steps of this round."""
        ...

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of a step of this round.

        Args:
            step: One of ``steps``.

        Returns:
            Inputs ``[b, ...]`` and targets ``[b, ...]``.
        """
        ...

    def loss(self, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a model ``[P]``, differentiable in the row.

        Args:
            row: The model, ``[P]``.
            x: Inputs, ``[b, ...]``.
            y: Targets, ``[b, ...]``.

        Returns:
            ``[]``
        """
        ...

    def outputs(self, row: Tensor, x: Tensor) -> Tensor:
        """Return the outputs of a model ``[P]``, differentiable in the row.

        Args:
            row: The model, ``[P]``.
            x: Inputs, ``[b, ...]``.

        Returns:
            ``[b, ...]``
        """
        ...

    def gradient(self, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient ``[P]`` of the mean loss; it is zero for buffers.

        Args:
            row: The model, ``[P]``.
            x: Inputs, ``[b, ...]``.
            y: Targets, ``[b, ...]``.

        Returns:
            ``[P]``
        """
        ...


class LocalAlgorithm(ABC):
    """What a client does in a round.

    A local algorithm is a frozen dataclass with a unique ``key``. Its fields are plain values, the
    same for all clients, or tensors with one row for each entry of the request. It is registered
    with ``register_algorithm`` wherever it runs: on the server and at real clients.

    ``Descent`` runs in the fast engines. Any other algorithm implements ``train`` and runs through
    autograd, client by client.

    >>> from dataclasses import dataclass
    >>> @register_algorithm
    ... @dataclass(frozen=True, eq=False)
    ... class SignDescent(LocalAlgorithm):
    ...     key = "example-sign-descent"
    ...     def train(self, client, start):
    ...         row = start
    ...         for step in client.steps:
    ...             gradient = client.gradient(row, *client.batch(step))
    ...             row = row - client.local.rate(step) * gradient.sign()
    ...         return row
    >>> ALGORITHMS["example-sign-descent"] is SignDescent
    True
    """

    key: ClassVar[str]

    @abstractmethod
    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        """Train one client.

        Args:
            client: Its data, loss and batches.
            start: The model to start from, ``[P]``.
            rows: This client's row of each tensor field.

        Returns:
            The trained model, ``[P]``.
        """

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensor fields that are set: one row for each entry of the request."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def settings(self) -> dict[str, Any]:
        """Return the plain fields, ready for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if not isinstance(value, Tensor)}

    @classmethod
    def restore(cls, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        """Return the algorithm with these ``settings`` and ``tensors``.

        Args:
            settings: The plain fields.
            tensors: The tensor fields.
        """
        return cls(**settings, **tensors)

    def select(self, index: NDArray[np.int64]) -> Self:
        """Return the same for some entries of the request.

        Args:
            index: ``[n]`` positions of entries.
        """
        chosen = {
            name: rows[torch.as_tensor(index, device=rows.device)]
            for name, rows in self.tensors().items()
        }
        return replace(self, **chosen) if chosen else self  # type: ignore[type-var]


def _check(name: str, item: Any) -> type[LocalAlgorithm]:
    if not (isinstance(item, type) and issubclass(item, LocalAlgorithm)):
        raise InputError(f"local algorithm {name!r} must be a subclass of LocalAlgorithm")
    return item


ALGORITHMS: Registry[type[LocalAlgorithm]] = Registry(
    "local algorithm", "srfca.federation.algorithms", "srfca.algorithms", _check
)
"""Local algorithms by key."""


def register_algorithm(algorithm: type[Any]) -> type[Any]:
    """Register a local algorithm, as a class decorator.

    Args:
        algorithm: The class, with a ``key`` that no other has.

    Returns:
        The same class.

    Raises:
        InputError: If another algorithm has this key.

    Examples:
        >>> from srfca.federation import Descent
        >>> ALGORITHMS[Descent.key] is register_algorithm(Descent)
        True
    """
    ALGORITHMS.add(algorithm.key, algorithm)
    return algorithm
