"""Models and trainings that the engine is compared with the reference on, in double precision."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from srfca import Simulation
from srfca.data import ClientData
from srfca.engine.backends.lstm import step_lstms
from srfca.federation import LocalTraining, Mixture
from srfca.models import linear, mlp
from srfca.testing import ReferenceFederation
from tests import examples

UNEQUAL = [7, 30, 12, 12, 5, 21]

CASES: dict[str, tuple[ClientData, Callable[[], nn.Module]]] = {
    "linear": (examples.regression(UNEQUAL), linear(4)),
    "mlp": (examples.classification(UNEQUAL), mlp(6, 5, 3)),
    "summed": (examples.classification(UNEQUAL), examples.Summed),
    "frozen": (examples.classification(UNEQUAL), examples.Frozen),
    "cnn": (examples.classification(UNEQUAL, (1, 6, 6)), examples.convolutional),
    "batch norm": (examples.classification(UNEQUAL, (1, 6, 6)), examples.batch_normed),
    "cumulative batch norm": (examples.classification(UNEQUAL), examples.cumulative_batch_norm),
    "dropout": (examples.classification(UNEQUAL), examples.dropped_out),
    "lstm": (examples.characters(UNEQUAL), examples.Recurrent),
    "stepped lstm": (examples.characters(UNEQUAL), lambda: step_lstms(examples.Recurrent())),
}

TRAININGS = {
    "sgd": LocalTraining(steps=6, local_steps=6, batch_size=8, lr=0.1),
    "momentum": LocalTraining(
        steps=6, local_steps=6, batch_size=8, lr=0.1, momentum=0.9, weight_decay=0.01
    ),
    "adam": LocalTraining(
        steps=6, local_steps=6, batch_size=8, optimizer="adam", lr=0.01, weight_decay=0.1
    ),
    "full batch": LocalTraining(steps=4, local_steps=4, batch_size=None, lr=0.1),
    "cosine, mu, clip": LocalTraining(
        steps=9, local_steps=6, batch_size=8, lr=0.3, schedule="cosine", mu=0.5, clip=0.2
    ),
    "resampled": LocalTraining(steps=5, local_steps=5, batch_size=8, lr=0.1, resample=True),
}


def pair(case: str, block_size: int | None = None) -> tuple[Simulation, ReferenceFederation]:
    """The simulation and the reference with the same clients."""
    data, model = CASES[case]
    double = examples.doubled(model)
    return Simulation(data, double, block_size=block_size), ReferenceFederation(data, double)


def different_models(federation: ReferenceFederation, count: int) -> Tensor:
    """Models near the initial one, another for each client: ``[count, P]``."""
    noise = torch.randn(count, federation.layout.length, generator=torch.Generator().manual_seed(1))
    return federation.initial_model(0) + 0.01 * noise.double().abs()


def mixture_of(federation: ReferenceFederation, clients: int, components: int = 3) -> Mixture:
    """Models that differ, and other weights for each client, one of which is 0."""
    generator = torch.Generator().manual_seed(4)
    models = torch.stack([federation.initial_model(seed) for seed in range(components)])
    models = models + 0.3 * torch.randn(models.shape, generator=generator).double().abs()
    weights = torch.rand(clients, components, generator=generator).double()
    weights[1, 0] = 0.0
    return Mixture(models, weights / weights.sum(1, keepdim=True))


def assert_same(values: Tensor, expected: Tensor) -> None:
    """Equal up to rounding in double precision."""
    torch.testing.assert_close(values, expected, rtol=1e-9, atol=1e-10)
