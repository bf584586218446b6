"""Initial models: random ones, those of clients drawn at random, and of clients far apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import InputError, LocalTraining, Partition, Simulation
from srfca.methods import Run
from srfca.methods._common.init import (
    check_start_steps,
    distant_models,
    drawn_models,
    next_center,
    random_models,
    starting_models,
)
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.methods.helpers import LOCAL, DropByNumber, losses, train

M = 8


def regressions() -> Simulation:
    return Simulation(examples.regression([20] * M, clusters=2), linear(4), device="cpu")


def test_random_models_differ_and_follow_the_seed() -> None:
    federation = Simulation(examples.classification([9] * 4), mlp(6, 5, 3))
    models = random_models(Run(federation, 1), 3, "start")
    assert len(torch.unique(models, dim=0)) == 3
    assert torch.equal(models, random_models(Run(federation, 1), 3, "start"))
    assert not torch.equal(models, random_models(Run(federation, 2), 3, "start"))


def test_equal_random_models_are_refused() -> None:
    federation = Simulation(examples.classification([9] * 4), mlp(6, 5, 3)())
    with pytest.raises(InputError, match=r"gives 2 equal models here.*use start='clients'"):
        random_models(Run(federation), 2, "start")
    assert random_models(Run(federation), 1, "start").shape[0] == 1


def test_drawn_models_are_those_of_the_clients() -> None:
    federation = regressions()
    models, centers = drawn_models(Run(federation), 3, LOCAL, 5, "start")
    starts = federation.initial_model(0).expand(3, -1)
    local = LocalTraining(steps=30, local_steps=5, batch_size=10, lr=0.05)
    assert torch.equal(models, train(federation, starts, centers, local, Key(0, "start")))
    assert len(set(centers)) == 3


def test_the_next_clients_replace_those_that_do_not_reply() -> None:
    _, order = drawn_models(Run(regressions()), 4, LOCAL, 5, "start")
    missing = DropByNumber(regressions(), {0: [order[0], order[2]]})
    models, centers = drawn_models(Run(missing), 2, LOCAL, 5, "start")
    assert centers == [order[1], order[2]]
    assert models.isfinite().all()
    none_reply = {number: range(M) for number in range(20)}
    for start in (drawn_models, distant_models):
        with pytest.raises(InputError, match="only 0 clients replied"):
            start(Run(DropByNumber(regressions(), none_reply)), 2, LOCAL, 5, "start")


@pytest.mark.parametrize("seed", range(5))
def test_distant_models_are_of_clients_that_differ(seed: int) -> None:
    federation = Simulation(examples.regression([20] * 12, clusters=4), linear(4))
    local = LocalTraining(steps=100, local_steps=5, batch_size=10, lr=0.05)
    models, _ = distant_models(Run(federation, seed), 4, local, local.steps, "start")
    best = losses(federation, models).argmin(1).numpy()
    assert Partition(best) == federation.data.truth


def test_starting_models_are_made_as_named() -> None:
    federation = Simulation(examples.classification([9] * 4), mlp(6, 5, 3))
    run = Run(federation)
    models, centers = starting_models(run, 2, "random", LOCAL, 5, "start")
    assert torch.equal(models, random_models(run, 2, "start"))
    assert centers == []
    models, centers = starting_models(run, 2, "clients", LOCAL, 5, "start")
    assert torch.equal(models, drawn_models(run, 2, LOCAL, 5, "start")[0])
    models, centers = starting_models(run, 2, "distant", LOCAL, 5, "start")
    assert torch.equal(models, distant_models(run, 2, LOCAL, 5, "start")[0])


def test_a_drawn_center_has_a_probability_in_proportion_to_its_loss() -> None:
    best_loss = np.array([1.0, 5.0, 0.0, 3.0, 2.0])
    drawn = [next_center(best_loss, [1], "drawn", Key(0, "x", t)) for t in range(3000)]
    shares = np.bincount(drawn, minlength=5) / 3000
    np.testing.assert_allclose(shares, [1 / 6, 0, 0, 3 / 6, 2 / 6], atol=0.03)
    assert next_center(best_loss, [1], "worst", Key(0, "x")) == 3


def test_clients_with_an_unknown_loss_are_the_last_choice() -> None:
    inf = np.inf
    for number in range(20):
        key = Key(0, "centre", number)
        assert next_center(np.array([1.0, inf, 2.0, inf]), [0], "drawn", key) == 2
        assert next_center(np.array([1.0, inf, 2.0, inf]), [0], "worst", key) == 2
        assert next_center(np.array([1.0, inf, 2.0, inf]), [0, 2], "drawn", key) == 1
        assert next_center(np.zeros(3), [0], "drawn", key) == 1


def test_start_steps_are_at_most_those_of_local_training() -> None:
    check_start_steps(None, LOCAL)
    check_start_steps(30, LOCAL)
    for steps in (0, 31):
        with pytest.raises(InputError, match=f"start_steps must be from 1 to 30 .* not {steps}"):
            check_start_steps(steps, LOCAL)
