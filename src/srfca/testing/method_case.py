"""The clients of the checks of methods, and comparisons of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from srfca import progress
from srfca.data.client_data import ClientData
from srfca.engine.simulation import Simulation
from srfca.federation.local_training import LocalTraining
from srfca.federation.middleware.base import Middleware
from srfca.federation.protocol import Federation
from srfca.federation.replies import Replies, T
from srfca.federation.requests import Request
from srfca.methods import Method, Monitor, Result
from srfca.models.dense import mlp
from srfca.testing.errors import require_check

FEATURES, CLASSES = 6, 3
LOCAL = LocalTraining(steps=6, local_steps=2, batch_size=5, lr=0.1)
"""How clients train in the checks of a class."""
_TENSORS = (
    "models", "individual_models", "mixture_weights", "fine_tuned_models", "fine_tuned_steps",
)  # fmt: skip
_STATISTICS = ("loss_limits", "input_statistics")


@dataclass(frozen=True)
class MethodCase:
    """A method, and the clients that it is checked with.

    Args:
        method: What is checked.
        data: What the clients hold.
        model: Makes the module.
    """

    method: Method
    data: ClientData
    model: Callable[[], nn.Module]

    @property
    def num_clients(self) -> int:
        """The number of clients, m."""
        return len(self.data.client_ids)

    def federation(self, block_size: int | None = None) -> Simulation:
        """Return a simulation of the clients."""
        return Simulation(self.data, self.model, device="cpu", block_size=block_size)

    def with_parameters(self, **parameters: Any) -> Method:
        """Return the method with some other parameters."""
        return replace(self.method, **parameters)


def example_clients() -> ClientData:
    """Return six clients of a small classification task in two true clusters.

    The clusters have different labels for the same inputs.
    """
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(CLASSES, FEATURES, generator=generator)

    def draw(count: int, cluster: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, FEATURES, generator=generator)
        return x, ((x @ teacher.T).argmax(1) + cluster) % CLASSES

    truth = [client % 2 for client in range(6)]
    train = {f"client {c}": draw(18 + c, cluster) for c, cluster in enumerate(truth)}
    test = {f"client {c}": draw(8, cluster) for c, cluster in enumerate(truth)}
    return ClientData.from_arrays(train, test, truth)


def example_model() -> nn.Module:
    """Return a network of two layers in double precision."""
    return mlp(FEATURES, 5, CLASSES)().double()


def tensors_of(result: Result) -> dict[str, Tensor]:
    """Return all tensors of a result by name."""
    tensors = {name: getattr(result, name) for name in _TENSORS}
    for name in _STATISTICS:
        statistics = getattr(result, name)
        parts = {} if statistics is None else statistics.tensors()
        tensors |= {f"{name}/{part}": parts[part] for part in parts}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def require_same_bits(result: Result, expected: Result, condition: str) -> None:
    """Require that two results are equal: labels, models, and scores and budget of every stage."""
    require_check(
        np.array_equal(result.labels, expected.labels),
        f"{condition} must give the same labels, not {result.labels.tolist()} and "
        f"{expected.labels.tolist()}",
    )
    tensors, of_expected = tensors_of(result), tensors_of(expected)
    for name in sorted({*tensors, *of_expected}):
        tensor, original = tensors.get(name), of_expected.get(name)
        same = tensor is not None and original is not None and torch.equal(tensor, original)
        require_check(same, f"{condition} must give the same {name}, to the bit")
    for attribute in ("name", "labels", "loss", "accuracy", "budget", "notes", "curve"):
        values = [getattr(stage, attribute) for stage in result.history]
        originals = [getattr(stage, attribute) for stage in expected.history]
        require_check(
            repr(values) == repr(originals),
            f"{condition} must give a history with the same {attribute} of every stage",
        )


def require_close(result: Result, expected: Result, condition: str) -> None:
    """Require that two results are equal up to rounding."""
    require_check(
        np.array_equal(result.labels, expected.labels),
        f"{condition} must give the same labels, not {result.labels.tolist()} and "
        f"{expected.labels.tolist()}",
    )
    for name in ("models", "individual_models", "mixture_weights"):
        tensor, original = getattr(result, name), getattr(expected, name)
        require_check(
            (tensor is None) == (original is None), f"{condition} must give {name} both times"
        )
        if tensor is not None:
            scale = 1 + float(original.abs().max())
            difference = float((tensor - original).abs().max()) / scale
            require_check(
                difference <= 1e-6,
                f"{condition} must give the same {name}, but they differ by {difference:.1e}",
            )


class Killed(BaseException):
    """Stands for the end of a process."""


class KillAfter(Middleware):
    """Answer a number of requests, then raise ``Killed``.

    Args:
        federation: Where requests are passed on to.
        num_requests: How many are answered; None for all.

    Attributes:
        requests: The requests so far.
    """

    def __init__(self, federation: Federation, num_requests: int | None = None) -> None:
        super().__init__(federation)
        self._num_requests = num_requests
        self.requests: list[Request[Any]] = []

    def ask(self, request: Request[T]) -> Replies[T]:
        """Pass a request on, unless there were enough."""
        if self._num_requests is not None and len(self.requests) >= self._num_requests:
            raise Killed
        self.requests.append(request)
        return self.federation.ask(request)


class StepMonitor(Monitor):
    """Adds up the local steps of every stage: those announced, and those reported as done."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int, int]] = []

    @contextmanager
    def stage(self, name: str, steps: int) -> Iterator[progress.Callback]:
        """Follow one stage."""
        done: list[int] = []
        yield done.append
        self.stages.append((name, steps, sum(done)))
