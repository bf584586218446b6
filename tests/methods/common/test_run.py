"""Runs: requests are counted, stages are recorded with scores, budget and missing replies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from srfca import FedAvg, InputError, LocalTraining, Partition, Simulation
from srfca.federation import Budget, ClientScores, Journal, Losses, Train
from srfca.methods import Run
from srfca.methods._common.run import diverged
from srfca.models import linear
from srfca.random import Key
from tests import examples
from tests.methods.helpers import DropByNumber, StageSteps, scores

LOCAL = LocalTraining(steps=6, local_steps=2, batch_size=5, lr=0.05)


def simulation(validation: float = 0.1) -> Simulation:
    return Simulation(examples.regression([20] * 4), linear(4), validation=validation)


def train_all(run: Run) -> torch.Tensor:
    starts = run.initial_model().expand(run.num_clients, -1)
    return run.train(Train(run.everyone, starts, LOCAL, run.key("x"))).values


def test_a_run_shows_the_federation() -> None:
    federation = simulation()
    run = Run(federation, seed=3)
    assert list(run.client_ids) == list(federation.client_ids)
    assert run.num_clients == 4
    assert run.everyone.tolist() == [0, 1, 2, 3]
    assert torch.equal(run.sizes, federation.sizes)
    assert run.layers == federation.layers
    assert torch.equal(run.initial_model(), federation.initial_model(3))
    assert run.key("x", 2) == Key(3, "x", 2)


def test_each_stage_has_the_budget_since_the_last() -> None:
    federation = simulation()
    run, everyone = Run(federation), Partition([0, 0, 0, 0])
    rows = train_all(run)
    run.record("FIRST", everyone, rows)
    run.ask(Losses(run.everyone, rows[:2]))
    run.record("SECOND", everyone, rows, notes={"reason": "test"})
    first, second = run.history
    assert first.budget.local_steps == 8
    assert second.budget == Budget(models_down=6, bytes_down=6 * 5 * 4, evaluations=8), (
        "a client has the model that it trained"
    )
    assert first.budget + second.budget == run.federation.spent
    assert second.notes == {"reason": "test"}
    assert first.loss == pytest.approx(float(scores(federation, rows, "validation").loss.mean()))


def test_scores_of_the_history_are_not_counted() -> None:
    run = Run(simulation())
    run.record("X", Partition([0, 0, 0, 0]), run.initial_model().expand(4, -1))
    assert run.federation.spent == Budget()
    assert run.history[0].loss is not None


def test_without_held_out_data_a_stage_has_no_score() -> None:
    run = Run(simulation(validation=0))
    run.record("X", Partition([0, 0, 0, 0]), run.initial_model().expand(4, -1))
    assert run.history[0].loss is None
    assert run.history[0].accuracy is None


def test_predictors_are_of_all_clients_of_the_clustered_or_of_those_named() -> None:
    federation = simulation()
    rows = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    losses = scores(federation, rows, "validation").loss
    run, partition = Run(federation), Partition([0, -1, 0, 0])
    run.record("ALL", partition, rows)
    run.record("CLUSTERED", partition, rows[[0, 2, 3]])
    run.record("NAMED", partition, rows[[1]], clients=np.array([1]))
    known = ClientScores(torch.tensor([1.0, 3.0]), None, torch.ones(2))
    run.record("KNOWN", partition, known, clients=np.array([3, 0]))
    expected = [float(part.mean()) for part in (losses, losses[[0, 2, 3]], losses[1])]
    assert [stage.loss for stage in run.history] == pytest.approx([*expected, 2.0])
    kept = [stage.scores for stage in run.history]
    assert kept[0] is not None
    assert torch.equal(kept[0].loss, losses)
    assert kept[1] is not None
    assert kept[1].loss.isnan().tolist() == [False, True, False, False]
    assert kept[3] is not None
    assert kept[3].loss[[0, 3]].tolist() == [3.0, 1.0]


def test_missing_replies_are_noted_with_their_stage() -> None:
    run = Run(DropByNumber(simulation(), {0: [1], 3: [2]}))
    everyone = Partition([0, 0, 0, 0])
    train_all(run)
    rows = run.initial_model().expand(4, -1)
    run.record("FIRST", everyone, rows)
    train_all(run)
    run.record("SECOND", everyone, rows)
    run.record("THIRD", everyone, rows)
    notes = [stage.notes.get("missing") for stage in run.history]
    assert notes == [
        [{"client": "1", "request": "train", "reason": "dropped"}],
        [{"client": "2", "request": "scores", "reason": "dropped"}],
        None,
    ]


def test_a_diverged_model_is_an_error_that_names_the_client() -> None:
    run = Run(simulation())
    starts = run.initial_model().expand(4, -1).clone()
    starts[[1, 3]] = torch.nan
    request = Train(run.everyone, starts, LOCAL, run.key("x"))
    with pytest.raises(InputError, match=r"pretraining diverged for client '1' and 1 more: .*lr"):
        run.train(request, "pretraining")
    assert "for x: the model" in str(diverged("training", "x"))


def test_a_monitor_sees_every_local_step() -> None:
    monitor = StageSteps()
    FedAvg(local=LOCAL, participation=0.5, fine_tune_steps=7).fit(simulation(), callbacks=monitor)
    assert monitor.stages == {"FEDAVG": (2 * 6, 2 * 6), "FINE_TUNE": (4 * 7, 4 * 7)}


def test_a_checkpoint_restores_the_state_and_what_was_counted(tmp_path: Path) -> None:
    def start() -> Run:
        return Run(simulation(), journal=Journal(tmp_path, {"test": 1}))

    initial = {"models": torch.zeros(1, 5), "done": torch.tensor(0)}
    first = start()
    assert first.latest("x", **initial) is not None
    rows = train_all(first)
    first.checkpoint("x", models=rows, done=torch.tensor(2))
    second = start()
    state = second.latest("x", **initial)
    assert torch.equal(state["models"], rows)
    assert int(state["done"]) == 2
    assert second.federation.spent == first.federation.spent
    assert start().latest("another training", **initial) == initial


def test_without_a_journal_a_training_starts_from_its_initial_state() -> None:
    run = Run(simulation())
    initial = {"models": torch.zeros(1, 5)}
    run.checkpoint("x", models=torch.ones(1, 5))
    assert run.latest("x", **initial) == initial
