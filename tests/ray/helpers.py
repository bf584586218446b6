"""Clients, losses and algorithms that the tests on a Ray cluster use. Workers import them."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from srfca import ClientData, data
from srfca.ray import RayFederation

End = Literal["process", "node"]


def small_model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))


def digits(num_clients: int = 12) -> ClientData:
    return data.rotated_digits(num_clients=num_clients, rotations=2)


def on_ray(clients: Any, model: Any = small_model, **arguments: Any) -> RayFederation:
    """A federation with two workers of one CPU."""
    arguments = {"actors": 2, "num_cpus": 1} | arguments
    return RayFederation(clients, model, **arguments)


@dataclass(frozen=True)
class Fragile:
    """A loss that ends its worker, or its node, in the middle of a training, when it is armed.

    It is armed by a file, which it removes first, so that it happens once.
    """

    armed: str
    ends: End

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        path = Path(self.armed)
        if path.exists():
            try:
                path.unlink()
            except FileNotFoundError:
                pass
            else:
                if self.ends == "node":
                    os.kill(os.getppid(), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


@dataclass(frozen=True)
class DigitsShard:
    """Makes a shard of the digits on its worker."""

    start: int
    stop: int

    def __call__(self) -> ClientData:
        from srfca.ray.shards import cut

        return cut(digits(), self.start, self.stop)


def close(first: Tensor, second: Tensor) -> bool:
    """Whether models are equal to rounding."""
    return torch.allclose(first.double(), second.double(), rtol=1e-4, atol=1e-5)
