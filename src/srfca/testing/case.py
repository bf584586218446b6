"""The clients of the checks, and comparisons with the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from srfca.data.client_data import ClientData
from srfca.federation.coordinates import Coordinates
from srfca.federation.mixture import Mixture
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients, ClientScores, Replies
from srfca.federation.requests import Request
from srfca.models.dense import mlp
from srfca.testing.errors import require_check
from srfca.testing.reference import ReferenceFederation

Model = Callable[[], nn.Module]
MakeFederation = Callable[[ClientData, Model], Federation]
"""From the clients' data and a callable that makes the module to a federation of these clients."""

SIZES = (12, 7, 30, 9)
"""Training samples of the clients in the checks."""
FEATURES, CLASSES = 6, 3
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}


@dataclass(frozen=True)
class Case:
    """A federation, and the reference with the same clients.

    Args:
        federation: What is checked.
        reference: What it has to agree with.
        tolerance: Largest difference of two numbers, relative to 1 plus the largest of them.
    """

    federation: Federation
    reference: ReferenceFederation
    tolerance: float

    @property
    def clients(self) -> Clients:
        """All clients: ``[m]``."""
        return np.arange(len(self.reference.client_ids))

    @property
    def head(self) -> Coordinates:
        """The coordinates of the last layer."""
        return Coordinates.of_layers(self.federation.layers, [list(self.federation.layers)[-1]])

    def models(self, count: int, seed: int = 0) -> Tensor:
        """Return models that differ: ``[count, P]``."""
        return torch.stack([self.reference.initial_model(seed + i) for i in range(count)])

    def class_shares(self, count: int) -> Tensor:
        """Return class shares of models; the last model has no share of the first class."""
        shares = torch.arange(1.0, 1 + count * CLASSES, dtype=torch.float64)
        shares = shares.view(count, CLASSES)
        shares[-1, 0] = 0.0
        return shares / shares.sum(1, keepdim=True)

    def mixture(self, class_shares: bool = False) -> Mixture:
        """Return a mixture of two models for each client, with class shares if asked for."""
        weights = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8], [0.0, 1.0]])
        models = self.models(2, seed=20)
        shares = self.class_shares(3)[:2] if class_shares else None
        return Mixture(models, weights.to(models), shares)

    def ask(self, request: Request[Any]) -> Replies[Any]:
        """Send a request, and require that every client replies."""
        replies = self.federation.ask(request)
        require_check(
            not replies.missing, f"clients did not reply to {request.name!r}: {replies.missing}"
        )
        require_check(
            replies.clients.tolist() == request.clients.tolist(),
            f"the replies to {request.name!r} are of the clients {replies.clients.tolist()}, but "
            f"{request.clients.tolist()} were asked",
        )
        return replies

    def compare(self, request: Request[Any], description: str) -> Any:
        """Require that the reply is that of the reference, and return it."""
        values = self.ask(request).values
        self.require_same(values, self.reference.ask(request).values, description)
        return values

    def require_same(self, values: Any, expected: Any, description: str) -> None:
        """Require that two replies are equal up to the tolerance."""
        if isinstance(expected, ClientScores):
            require_check(isinstance(values, ClientScores), f"{description} must be ClientScores")
            self.require_same(values.loss, expected.loss, f"the loss of {description}")
            self.require_same(
                values.num_samples, expected.num_samples, f"the number of samples of {description}"
            )
            require_check(
                (values.accuracy is None) == (expected.accuracy is None),
                f"the accuracy of {description} must be given exactly if the targets are classes",
            )
            if expected.accuracy is not None:
                self.require_same(
                    values.accuracy, expected.accuracy, f"the accuracy of {description}"
                )
            return
        require_check(
            tuple(values.shape) == tuple(expected.shape),
            f"{description} must have the shape {tuple(expected.shape)}, not {tuple(values.shape)}",
        )
        values, expected = values.detach().cpu().double(), expected.detach().cpu().double()
        unknown = expected.isnan()
        require_check(
            bool(values[unknown].isnan().all()),
            f"{description} must be NaN where the answer is not defined",
        )
        values, expected = values[~unknown], expected[~unknown]
        require_check(bool(values.isfinite().all()), f"{description} must be finite")
        if values.numel():
            scale = 1 + float(expected.abs().max())
            difference = float((values - expected).abs().max()) / scale
            require_check(
                difference <= self.tolerance,
                f"{description} differs by {difference:.1e}, more than {self.tolerance:.1e}",
            )


def make_case(
    make: MakeFederation,
    dtype: torch.dtype = torch.float64,
    tolerance: float | None = None,
    validation: float = 0.1,
) -> Case:
    """Return the case of one check, to run a check of ``FEDERATION_CHECKS`` alone.

    Args:
        make: From client data and a model to the federation to check, as in ``check_federation``.
        dtype: Data type of the models.
        tolerance: Largest relative difference to the reference; None is that of the type.
        validation: The fraction of held-out samples.

    Returns:
        The federation and the reference, with the same clients.

    >>> from srfca import Simulation
    >>> from srfca.testing import FEDERATION_CHECKS
    >>> FEDERATION_CHECKS["rounds"](make_case(Simulation))
    """
    data = example_data()

    def model() -> nn.Module:
        return mlp(FEATURES, 5, CLASSES)().to(dtype)

    reference = ReferenceFederation(data, model, validation=validation)
    if tolerance is None:
        tolerance = _TOLERANCE.get(dtype, 1e-2)
    return Case(make(data, model), reference, tolerance)


def example_data() -> ClientData:
    """Return the data of the checks: a small classification task of clients of unequal sizes."""
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(CLASSES, FEATURES, generator=generator)

    def draw(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, FEATURES, generator=generator)
        return x, (x @ teacher.T).argmax(1)

    train = {f"client {position}": draw(size) for position, size in enumerate(SIZES)}
    test = {f"client {position}": draw(5) for position in range(len(SIZES))}
    return ClientData.from_arrays(train, test)
