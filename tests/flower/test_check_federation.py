"""The checks that every federation has to pass, over Flower."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from flwr.app import Context
from torch import nn

from srfca import ClientData
from srfca.flower import FlowerFederation
from tests.flower.grid import LocalGrid
from tests.flower.setup import make_app

checks = pytest.importorskip("srfca.testing.checks")


def make(data: ClientData, model: Callable[[], nn.Module], losses: float = 0.0) -> FlowerFederation:
    """Return a federation that loses a fraction of the replies."""

    def load_data(context: Context) -> ClientData:
        return data.select(int(context.node_config["partition-id"]))

    grid = LocalGrid(make_app(model=model, data=load_data), range(len(data)))
    federation = FlowerFederation(grid, model, num_clients=len(data))
    draws = random.Random(0)
    grid.fault = lambda *_: RuntimeError("lost") if draws.random() < losses else None
    return federation


def test_a_flower_federation_passes_all_checks() -> None:
    checks.check_federation(make, make_unreliable=partial(make, losses=0.2))
