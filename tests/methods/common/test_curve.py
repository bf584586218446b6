"""Learning curves: what is known anyway is kept, and more only if it is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from srfca import SRFCA, FedAvg, InputError, LocalTraining, Result, Simulation, models
from srfca.federation import ClientScores
from srfca.methods import IFCA, CurvePoint, Monitor, RoundEnd, Stage
from srfca.methods._common.curve import LearningCurve
from srfca.models import linear
from tests import examples
from tests.methods.helpers import DropByNumber

LOCAL = LocalTraining(steps=6, local_steps=2, batch_size=5, lr=0.05)


def simulation(validation: float = 0.2) -> Simulation:
    return Simulation(examples.regression([20] * 4), linear(4), validation=validation)


def points(result: Result) -> list[CurvePoint]:
    return [point for stage in result.history for point in stage.curve]


def test_the_score_of_a_stage_is_known_by_cluster_without_extra_cost() -> None:
    result = FedAvg(local=LOCAL).fit(simulation())
    (point,) = points(result)
    assert (point.training, point.round, point.split) == ("FEDAVG", 3, "validation")
    assert point.local_steps == 4 * LOCAL.steps == result.budget.local_steps
    assert point.loss == pytest.approx((result.history[0].loss,))
    assert result.budget.evaluations == 0


def test_curves_score_every_nth_round_and_are_counted() -> None:
    local = replace(LOCAL, steps=14)
    plain = FedAvg(local=local).fit(simulation())
    result = FedAvg(local=local, curves=2).fit(simulation())
    assert [point.round for point in points(result)] == [2, 4, 6, 7], "the last is the stage's"
    assert [point.local_steps for point in points(result)] == [16, 32, 48, 56]
    assert torch.equal(result.models, plain.models)
    assert result.budget.evaluations == 3 * 4
    assert result.budget.models_down == plain.budget.models_down, "the next round needs them anyway"


def test_curves_need_held_out_data() -> None:
    assert points(FedAvg(local=LOCAL).fit(simulation(validation=0))) == []
    with pytest.raises(InputError, match="curves needs held-out data"):
        FedAvg(local=LOCAL, curves=1).fit(simulation(validation=0))


def test_ifca_knows_its_training_losses_by_cluster_in_every_round() -> None:
    result = IFCA(k=2, start="clients", local=LOCAL).fit(simulation())
    of_training = [point for point in points(result) if point.split == "train"]
    assert [point.round for point in of_training] == [0, 1, 2, 3]
    assert all(len(point.loss) == 2 for point in of_training)
    sizes = np.bincount(result.labels, minlength=2)
    known = [loss for loss in of_training[-1].loss if loss is not None]
    if len(known) == 2:
        mean = float(np.average(known, weights=sizes))
        assert mean == pytest.approx(result.history[0].notes["training_loss"])


def test_sr_fca_keeps_the_scores_that_it_decides_by() -> None:
    data = examples.regression([20] * 6, clusters=2)
    federation = Simulation(data, models.linear(4), validation=0.3)
    result = SRFCA(local=replace(LOCAL, steps=18)).fit(federation)
    for stage in result.history:
        assert stage.curve[-1].training == stage.name
        assert len(stage.curve[-1].loss) in (1, stage.partition.num_clusters)
        if stage.name.startswith("TRIMMED_MEAN_GD"):
            assert [point.round for point in stage.curve] == [3, 9], "after a third, and at the end"


def test_a_cluster_of_which_nothing_is_known_has_no_mean() -> None:
    curve = LearningCurve()
    scores = ClientScores(torch.tensor([1.0, torch.nan, 2.0]), None, torch.ones(3))
    curve.add_scores("X", 5, scores, np.array([0, 1, -1]), 2)
    assert curve.points == [CurvePoint("X", 0, 5, "validation", (1.0, None))]
    other = LearningCurve()
    other.restore(curve.state())
    assert other.points == curve.points


def test_curves_are_saved_and_loaded(tmp_path: Path) -> None:
    result = FedAvg(local=LOCAL, curves=1).fit(simulation())
    assert points(Result.load(result.save(tmp_path))) == points(result)


class Rounds(Monitor):
    """Remembers rounds and stages."""

    def __init__(self) -> None:
        self.rounds: list[RoundEnd] = []
        self.stages: list[Stage] = []

    def round_end(self, end: RoundEnd) -> None:
        self.rounds.append(end)

    def stage_end(self, stage: Stage) -> None:
        self.stages.append(stage)


def test_a_monitor_receives_rounds_scores_and_missing_replies() -> None:
    monitor = Rounds()
    federation = DropByNumber(simulation(), {2: [1]})
    result = FedAvg(local=LOCAL, curves=2).fit(federation, callbacks=monitor)
    assert [(end.training, end.number, end.total) for end in monitor.rounds] == [
        ("FEDAVG", number, 3) for number in (1, 2, 3)
    ]
    assert [end.point is not None for end in monitor.rounds] == [False, True, False]
    missing = [[reply.client for reply in end.missing] for end in monitor.rounds]
    assert missing == [[], ["1"], []]
    assert [end.spent.local_steps for end in monitor.rounds] == [8, 16, 24]
    assert monitor.stages == list(result.history)
