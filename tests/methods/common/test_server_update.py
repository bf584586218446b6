"""Server momentum, and the mean of the models of the last rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from srfca import SRFCA, LocalTraining, Simulation
from srfca.aggregation.rules import Mean
from srfca.federation.coordinates import Coordinates
from srfca.methods import CFL, IFCA, FedAvg, Method, Monitor
from srfca.methods._common.monitor import RoundEnd
from srfca.methods._common.rounds import federated_training, one_cluster
from srfca.methods._common.run import Run
from srfca.methods._common.server_update import ServerUpdate
from srfca.models import mlp
from tests import examples

LOCAL = LocalTraining(steps=20, local_steps=2, batch_size=5, lr=0.1)
AVERAGED = replace(LOCAL, average_last=0.3)
MOMENTUM = replace(LOCAL, server_momentum=0.5)


def simulation() -> Simulation:
    return Simulation(examples.classification([12, 9, 14, 10, 11, 13]), mlp(6, 4, 3))


def models_after(rounds: int, local: LocalTraining) -> torch.Tensor:
    run = Run(simulation())
    start = run.initial_model().unsqueeze(0)
    return federated_training(
        run, "TEST", start, one_cluster(run), local, Mean(), purpose="test", rounds=range(rounds)
    )


def test_it_is_the_mean_of_the_last_rounds() -> None:
    last = [models_after(rounds, LOCAL) for rounds in (8, 9, 10)]
    torch.testing.assert_close(models_after(10, AVERAGED), torch.stack(last).mean(0))


def test_a_training_that_continues_later_is_not_averaged() -> None:
    assert torch.equal(models_after(9, AVERAGED), models_after(9, LOCAL))


def test_clients_continue_from_the_latest_models_between_parts() -> None:
    run = Run(simulation())
    models = run.initial_model().unsqueeze(0)
    for rounds in (range(4), range(4, 10)):
        models = federated_training(
            run, "TEST", models, one_cluster(run), AVERAGED, Mean(), purpose="test", rounds=rounds
        )
    torch.testing.assert_close(models, models_after(10, AVERAGED))


def test_momentum_adds_a_part_of_the_last_change() -> None:
    first, plain = models_after(1, LOCAL), models_after(2, LOCAL)
    start = Run(simulation()).initial_model()
    expected = plain + 0.5 * (first - start)
    torch.testing.assert_close(models_after(1, MOMENTUM), first)
    torch.testing.assert_close(models_after(2, MOMENTUM), expected)


def test_buffers_have_no_momentum() -> None:
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))

    federation = Simulation(examples.classification([12, 9, 14, 10, 11, 13]), network)
    run = Run(federation)
    server = ServerUpdate(run, MOMENTUM, 10)
    models = run.initial_model().unsqueeze(0)
    for _ in range(3):
        before, models = models, server.step(models, models + 1)
    layers = federation.layers
    trained = Coordinates.trained(layers).mask(models.shape[1])
    assert 0 < int((~trained).sum()) < len(trained)
    torch.testing.assert_close(
        (models - before)[0, trained], torch.tensor(1.75).expand(int(trained.sum()))
    )
    assert torch.equal((models - before)[0, ~trained], torch.ones(int((~trained).sum())))


class KilledError(Exception):
    pass


class KillAfter(Monitor):
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def round_end(self, end: RoundEnd) -> None:
        self.rounds -= 1
        if self.rounds < 0:
            raise KilledError


METHODS: list[Callable[[LocalTraining], Method]] = [
    lambda local: FedAvg(local=local),
    lambda local: IFCA(k=2, local=local),
    lambda local: CFL(local=local),
    lambda local: SRFCA(refine_steps=1, local=local),
]


@pytest.mark.parametrize("make", METHODS)
@pytest.mark.parametrize("local", [AVERAGED, MOMENTUM, replace(MOMENTUM, average_last=0.3)])
def test_all_methods_use_it_and_resume_with_the_same_models(
    make: Callable[[LocalTraining], Method], local: LocalTraining, tmp_path: Path
) -> None:
    expected = make(local).fit(simulation())
    assert not torch.equal(expected.models, make(LOCAL).fit(simulation()).models)
    with pytest.raises(KilledError):
        make(local).fit(simulation(), callbacks=KillAfter(8), journal=tmp_path / "journal")
    resumed = make(local).fit(simulation(), journal=tmp_path / "journal")
    assert torch.equal(resumed.models, expected.models)
    assert resumed.budget == expected.budget
