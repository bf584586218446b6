from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from srfca import SRFCA, FedAvg, Local, LocalTraining, Result, Simulation
from srfca.analysis import analyze, train_reference
from srfca.analysis.reference import history_reference
from tests.methods.helpers import DIGITS


def test_the_history_of_a_run_is_a_reference(result: Result, federation: Simulation) -> None:
    reference = history_reference(result)
    assert reference is not None
    assert (reference.split, reference.source) == ("validation", "history")
    assert torch.equal(reference.answer.loss, result.scores(federation, "validation").loss)
    alone = Local(local=DIGITS)
    assert reference.alone is not None
    assert float(reference.alone.loss.mean()) == pytest.approx(result.history[0].loss)
    assert alone.local == DIGITS


def test_a_trial_that_was_given_up_is_no_reference(result: Result) -> None:
    together = [stage for stage in result.history if stage.name == "TOGETHER"]
    assert [stage.notes["given_up"] for stage in together] == [True]
    reference = history_reference(result)
    assert reference is not None
    assert reference.together is None


def test_one_model_that_was_trained_is_a_reference(result: Result) -> None:
    history = tuple(
        replace(stage, notes={"given_up": False}) if stage.name == "TOGETHER" else stage
        for stage in result.history
    )
    reference = history_reference(replace(result, history=history))
    assert reference is not None
    [together] = [stage.scores for stage in history if stage.name == "TOGETHER"]
    assert reference.together is together


def test_local_models_of_fewer_steps_are_no_reference(result: Result) -> None:
    parameters = {**result.parameters, "one_shot_steps": 10}
    assert history_reference(replace(result, parameters=parameters)) is None
    retrained = replace(result.history[0], name="ALONE")
    history = (*result.history[:-1], retrained, result.history[-1])
    reference = history_reference(replace(result, parameters=parameters, history=history))
    assert reference is not None
    assert reference.alone is retrained.scores


def test_nothing_held_out_is_no_reference(result: Result) -> None:
    history = tuple(replace(stage, scores=None) for stage in result.history)
    assert history_reference(replace(result, history=history)) is None
    assert history_reference(replace(result, history=())) is None


def test_other_methods_have_no_reference(federation: Simulation) -> None:
    result = FedAvg(local=LocalTraining(steps=5)).fit(federation)
    assert history_reference(result) is None
    analysis = analyze(result, federation)
    assert (analysis.verdict, analysis.reference, analysis.confidence) == ("none", None, None)


def test_a_reference_is_trained_like_the_baselines(result: Result, federation: Simulation) -> None:
    local = LocalTraining(steps=20, batch_size=10, lr=0.5)
    reference = train_reference(result, federation, local)
    assert (reference.split, reference.source) == ("test", "runs")
    together = FedAvg(local=local).fit(federation, seed=result.seed).scores(federation)
    alone = Local(local=local).fit(federation, seed=result.seed).scores(federation)
    assert reference.together is not None
    assert reference.alone is not None
    assert torch.equal(reference.together.loss, together.loss)
    assert torch.equal(reference.alone.loss, alone.loss)
    analysis = analyze(result, federation, reference=reference, differences=False)
    assert analysis.reference is reference
    columns = analysis.clusters()
    assert None not in columns["gain_over_global"]
    assert None not in columns["gain_over_alone"]


def test_fine_tuned_models_are_scored(federation: Simulation) -> None:
    local = LocalTraining(steps=20, batch_size=10, lr=0.5)
    result = SRFCA(local=local, fine_tune_steps=10).fit(federation)
    analysis = analyze(result, federation, differences=False)
    expected = result.scores(federation, "test", fine_tuned=True)
    assert torch.equal(analysis.scores.loss, expected.loss)
