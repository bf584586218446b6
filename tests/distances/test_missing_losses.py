"""Distances by loss when some clients do not reply."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import Partition, Simulation
from srfca.aggregation import winsorize
from srfca.distances import ModelSet, cross_loss
from srfca.federation import Losses, Middleware, Replies, Request
from srfca.federation.replies import T
from srfca.models import linear
from tests import examples
from tests.methods.helpers import DropByNumber, losses

M = 8
DATA = examples.regression([20] * M, clusters=2)
EVERYONE = np.arange(M)


def simulation() -> Simulation:
    return Simulation(DATA, linear(4), device="cpu")


@given(st.integers(0, 10**6))
def test_a_loss_on_a_cluster_is_the_mean_over_the_clients_that_replied(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    cluster_models = torch.randn(3, 5, generator=g)
    partition = Partition(torch.randint(3, (M,), generator=g).numpy())
    missing = [c for c in range(M) if float(torch.rand((), generator=g)) < 0.4]
    local_models = torch.randn(M, 5, generator=g)
    federation = DropByNumber(simulation(), {0: missing})
    clusters = ModelSet.of_clusters(
        federation, tuple(federation.client_ids), cluster_models[: partition.num_clusters],
        partition,
    )  # fmt: skip
    computed = ModelSet.of_clients(federation, local_models).loss_on(clusters).numpy()
    complete = losses(simulation(), local_models).T.double().numpy()
    for c, members in enumerate(partition):
        replied = [member for member in members if member not in missing]
        expected = winsorize(complete[:, replied]).mean(1) if replied else np.full(M, np.nan)
        assert np.allclose(computed[:, c], expected, equal_nan=True)


def test_a_model_set_asks_again_for_missing_losses() -> None:
    federation = DropByNumber(simulation(), {0: [1, 4]})
    models = ModelSet.of_clients(federation, torch.randn(M, 5))
    first = models.losses_on(EVERYONE)
    assert first.isnan().all(0).tolist() == [client in (1, 4) for client in range(M)]
    assert models.unanswered_pairs()[1].all()
    assert not models.unanswered_pairs()[0, 2]
    second = models.losses_on(EVERYONE)
    assert len(federation.requests) == 2
    assert federation.requests[1].clients.tolist() == [1, 4]
    torch.testing.assert_close(second, losses(simulation(), models.models).T)
    assert not models.has_unanswered
    models.losses_on(EVERYONE)
    assert len(federation.requests) == 2, "losses are kept"


class DivergedModel(Middleware):
    """Reply with NaN as the loss of a model that is NaN."""

    def ask(self, request: Request[T]) -> Replies[T]:
        models: Any = getattr(request, "models", None)
        replies: Any = self.federation.ask(Losses(request.clients, models.nan_to_num()))
        replies.values[:, models.isnan().any(1)] = torch.nan
        return cast(Replies[T], replies)


def test_cross_loss_is_one_direction_where_the_other_is_unknown() -> None:
    models = torch.randn(M, 5)
    expected = losses(simulation(), models).T.double().numpy()
    models[3] = torch.nan
    expected[3] = np.nan
    expected[:, 6] = np.nan
    federation = DropByNumber(DivergedModel(simulation()), {0: [6], 1: [6]})
    local_models = ModelSet.of_clients(federation, models)
    distances = cross_loss(local_models, local_models)
    for i in range(M):
        for j in range(M):
            pair = np.array([expected[i, j], expected[j, i]])
            value = np.nan if np.isnan(pair).all() else np.nanmean(pair)
            assert np.isclose(distances[i, j], value, equal_nan=True)
