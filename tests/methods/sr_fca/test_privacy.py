"""With distances between rows, no client is sent the local model of another."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from srfca import SRFCA, ClientData, Simulation
from srfca.federation import Federation, Losses, Middleware, Replies, Request, Train
from srfca.methods import Run
from srfca.methods._common.base import Answer, place_missing
from srfca.models import mlp
from tests.methods.helpers import DIGITS, DropByNumber, digits


class Recorded(Middleware):
    """Record the local models of ONE_SHOT, and which of them are sent to other clients."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self.local_models: dict[bytes, int] = {}
        self.leaks: list[tuple[str, int, int]] = []

    def ask(self, request: Request[Any]) -> Replies[Any]:
        for field in fields(request):
            value = getattr(request, field.name)
            if isinstance(value, Tensor) and value.ndim == 2:
                self._check(request, value, by_entry=field.name == "starts" or _by_entry(request))
        replies: Replies[Any] = self.federation.ask(request)
        if isinstance(request, Train) and request.key.purpose in ("one_shot", "alone"):
            for client, row in zip(replies.clients.tolist(), replies.values, strict=True):
                self.local_models[row.numpy().tobytes()] = client
        return replies

    def _check(self, request: Request[Any], rows: Tensor, by_entry: bool) -> None:
        """Note a leak; a row goes to the client of its entry, or each row to all clients."""
        for entry, row in enumerate(rows):
            owner = self.local_models.get(row.contiguous().numpy().tobytes())
            receivers = request.clients[entry : entry + 1] if by_entry else request.clients
            for client in receivers.tolist():
                if owner is not None and owner != client:
                    self.leaks.append((request.name, owner, client))


def _by_entry(request: Request[Any]) -> bool:
    return request.name in ("scores", "gradients", "train")


@pytest.mark.parametrize("threshold", ["auto", "40%"])
@pytest.mark.parametrize("distance", ["l2", "cosine", "cross_loss"])
def test_local_models_stay_with_their_clients(threshold: str, distance: str) -> None:
    federation = Recorded(digits(num_clients=12, rotations=2))
    SRFCA(local=DIGITS, threshold=threshold, distance=distance).fit(federation)
    assert len(federation.local_models) == 12
    assert bool(federation.leaks) == (distance == "cross_loss")


def with_an_outlier(seed: int = 0, outliers: int = 1) -> Simulation:
    """Return 12 clients, of which the last ones have labels of their own."""
    made = digits(seed, num_clients=12, rotations=2).data
    samples = [tuple(part.numpy() for part in made.train.of(client)) for client in range(12)]
    for number in range(outliers):
        x, y = samples[11 - number]
        samples[11 - number] = x, np.random.default_rng(number).permutation(10)[y]
    return Simulation(ClientData.from_arrays(samples), mlp(64, 32, 10), validation=0.3)


@pytest.mark.filterwarnings("ignore::srfca.errors.SrfcaWarning")
@pytest.mark.parametrize("outliers", [1, 12])
def test_the_model_of_a_client_that_is_alone_stays_with_it(outliers: int) -> None:
    """In the run, in an adaptation, and when alarms are looked for."""
    federation = Recorded(with_an_outlier(outliers=outliers))
    local = replace(DIGITS, steps=120)
    result = SRFCA(local=local, distance="l2").fit(federation)
    assert len(result.partition.alone) == outliers
    assert result.loss_limits is not None
    assert result.loss_limits.clients.tolist() == result.partition.sizes.tolist()
    assert result.drift_alarms(federation) == ()
    adapted = result.adapt(federation, DIGITS, rounds=1)
    assert adapted.partition == result.partition
    assert not federation.leaks


def test_clients_that_were_missing_are_not_sent_the_model_of_one_that_is_alone() -> None:
    federation = Recorded(DropByNumber(digits(num_clients=6, rotations=1), {0: [3]}))
    run = Run(federation)
    models = torch.stack([run.initial_model(), run.federation.initial_model(1)])
    run.ask(Losses(run.everyone, models[:1]))
    federation.local_models[models[1].numpy().tobytes()] = 5
    answer = Answer(np.array([0, 0, 0, -1, 0, 1]), models)
    placed, _ = place_missing(run, answer, None)
    assert placed.labels.tolist() == [0, 0, 0, 0, 0, 1]
    assert not federation.leaks
