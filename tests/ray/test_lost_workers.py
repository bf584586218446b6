"""Workers and nodes that are lost in the middle of a request change no answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

pytest.importorskip("ray")

from srfca import SRFCA, LocalTraining, Simulation
from srfca.aggregation.rules import Mean, Median
from srfca.federation.coordinates import Coordinates
from srfca.federation.requests import Losses, Request, Round, Train
from srfca.federation.rounds import ask
from srfca.random import Key
from tests.ray.cluster import LocalCluster
from tests.ray.helpers import End, Fragile, close, digits, on_ray, small_model

pytestmark = pytest.mark.slow

LOCAL = LocalTraining(steps=12, local_steps=4, batch_size=8, lr=0.3)


def test_sr_fca_finds_the_same_when_a_worker_is_lost(cluster: LocalCluster, tmp_path: Path) -> None:
    armed = tmp_path / "armed"
    loss, data = Fragile(str(armed), "process"), digits(6)
    method = SRFCA(local=LOCAL, refine_steps=1)
    expected = method.fit(Simulation(data, small_model, loss=loss), seed=1)
    with on_ray(data, loss=loss) as federation:
        armed.touch()
        result = method.fit(federation, seed=1)
        assert federation.num_losses == 1
    assert not armed.exists()
    assert result.labels.tolist() == expected.labels.tolist()
    assert close(result.models, expected.models)
    assert result.budget == expected.budget


@pytest.mark.parametrize("ends", ["process", "node"])
def test_a_worker_that_is_lost_in_a_round_changes_nothing(
    cluster: LocalCluster, tmp_path: Path, ends: End
) -> None:
    armed = tmp_path / "armed"
    loss, data = Fragile(str(armed), ends), digits(6)
    simulation = Simulation(data, small_model, loss=loss)
    w0 = simulation.initial_model(0)
    kept = replace(LOCAL, lr=0.1, momentum=0.9, keep_state=True)
    sparse = replace(LOCAL, compress=0.1)
    kinds = ((LOCAL, Mean()), (LOCAL, Median()), (kept, Mean()), (kept, Median()), (sparse, Mean()))
    requests: list[Request[Tensor]] = [
        *(
            Round(np.arange(6), w0.expand(2, -1), np.arange(6) % 2, local, Key(1, "round", n), rule)
            for local, rule in kinds
            for n in range(2)
        ),
        *(
            Train(
                np.arange(6), w0.expand(6, -1), LOCAL, Key(1, "head", n),
                personal=Coordinates(((0, 8),)),
            )
            for n in range(2)
        ),
        Losses(np.arange(6), w0.expand(2, -1)),
    ]  # fmt: skip
    expected = [ask(simulation, request).values for request in requests]
    chosen = (3, 7) if ends == "process" else (2, 7)
    with on_ray(data, loss=loss, num_cpus=2, patience=10.0) as federation:
        for number, request in enumerate(requests):
            if number in chosen:
                cluster.require_nodes(2)
                armed.touch()
            values = federation.ask(request).values
            assert close(values, expected[number]), number
            assert not armed.exists()
        assert federation.num_losses >= len(chosen)
