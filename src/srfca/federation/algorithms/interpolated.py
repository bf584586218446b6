"""APFL's steps: of an individual model that predicts together with a global one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from srfca.federation.algorithms._base import LocalAlgorithm, LocalClient, register_algorithm
from srfca.federation.algorithms._optimizer import RowOptimizer


@register_algorithm
@dataclass(frozen=True, eq=False, kw_only=True)
class InterpolatedDescent(LocalAlgorithm):
    """Train v on the loss of ``alpha v + (1 - alpha) w``, while w takes its own steps.

    The client starts from v and returns it. The steps of w are those of ``Descent`` with the same
    key, which a request of its own returns.

    Args:
        models: ``[c, P]`` the w that each client received.
        alphas: ``[c, P]`` alpha of each client, in every coordinate.
    """

    key: ClassVar[str] = "apfl"

    models: Tensor
    alphas: Tensor

    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        """Return the trained v, ``[P]``."""
        alpha = rows["alphas"]
        w, v = (RowOptimizer(client.local, row) for row in (rows["models"], start))
        for step in client.steps:
            x, y = client.batch(step)
            mixed = alpha * v.row + (1 - alpha) * w.row
            v.step(step, alpha * client.gradient(mixed, x, y))
            w.step(step, client.gradient(w.row, x, y))
        return v.row


@register_algorithm
@dataclass(frozen=True, eq=False, kw_only=True)
class AlphaDescent(LocalAlgorithm):
    """Take one step of alpha on the loss of ``alpha v + (1 - alpha) w``, within [0, 1].

    The client starts from alpha, in every coordinate, and returns the new one likewise.

    Args:
        models: ``[c, P]`` the clients' w.
        individual_models: ``[c, P]`` their v.
    """

    key: ClassVar[str] = "apfl-alpha"

    models: Tensor
    individual_models: Tensor

    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        """Return the new alpha in every coordinate, ``[P]``."""
        w, v = rows["models"], rows["individual_models"]
        alpha = start
        for step in client.steps:
            gradient = client.gradient(alpha * v + (1 - alpha) * w, *client.batch(step))
            alpha = alpha - client.local.rate(step) * torch.dot(v - w, gradient)
            alpha = alpha.clamp(0, 1)
        return alpha
