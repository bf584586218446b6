"""Answers of runs: saved, and compared with Global and Local."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from srfca.analysis import Analysis
from srfca.experiments import runner
from srfca.experiments.answer import analyze_run, compared, save_answer
from srfca.experiments.executor import RunExecutor, RunSpec
from srfca.experiments.runner import ScoredRun
from srfca.federation import LocalTraining
from tests.experiments.small import small_experiment


@pytest.fixture(scope="module")
def runs() -> dict[str, ScoredRun]:
    experiment = small_experiment()
    federation = runner.make_federation(experiment, 0)
    keys = ("sr-fca", "global", "local")
    return {key: runner.run_method(experiment, key, federation, 0) for key in keys}


def test_metrics_name_the_clients(runs: dict[str, ScoredRun]) -> None:
    run = runs["sr-fca"]
    metrics = run.metrics
    assert metrics["client_ids"] == list(run.result.client_ids)
    assert len(metrics["labels"]) == len(metrics["client_ids"])
    assert metrics["client_losses"] == run.scores.loss.tolist()
    assert run.scores.accuracy is not None
    assert metrics["client_accuracies"] == run.scores.accuracy.tolist()


def test_answers_are_compared_with_other_runs(runs: dict[str, ScoredRun]) -> None:
    metrics = {key: run.metrics for key, run in runs.items()}
    analysis = analyze_run(runs["sr-fca"], differences=False)
    both = compared(analysis, metrics["sr-fca"], list(metrics.values()))
    assert both.reference is not None
    assert both.reference.source == "runs"
    assert both.reference.together is not None
    torch.testing.assert_close(both.reference.together.loss, runs["global"].scores.loss.double())
    assert both.reference.alone is not None
    part = compared(analysis, metrics["sr-fca"], [metrics["sr-fca"], metrics["local"]])
    assert part.reference is not None
    assert part.reference.together is None
    assert compared(analysis, metrics["sr-fca"], [metrics["sr-fca"]]) is analysis
    other_seed = [{**run, "seed": 7} for run in metrics.values()]
    assert compared(analysis, metrics["sr-fca"], other_seed) is analysis
    assert compared(analysis, metrics["global"], list(metrics.values())) is analysis


def test_a_reference_is_trained_on_demand(runs: dict[str, ScoredRun]) -> None:
    local = LocalTraining(steps=3, batch_size=10)
    analysis = analyze_run(runs["sr-fca"], reference=local, differences=False)
    assert analysis.reference is not None
    assert analysis.reference.source == "runs"


def test_an_answer_is_saved(runs: dict[str, ScoredRun], tmp_path: Path) -> None:
    analysis = analyze_run(runs["sr-fca"])
    path = save_answer(analysis, tmp_path)
    assert path == tmp_path / "clusters.csv"
    assert len(path.read_text().splitlines()) == 1 + len(analysis.client_ids)
    assert Analysis.load(tmp_path).sentence() == analysis.sentence()


def test_an_executor_analyzes_runs_with_clusters(tmp_path: Path) -> None:
    executor = RunExecutor(small_experiment(), out=tmp_path, analyzes=True)
    spec = RunSpec("sr-fca", 0)
    outcome = executor.execute(spec)
    assert outcome.analysis is not None
    saved = executor.read_saved(spec)
    assert saved is not None
    assert saved.analysis is not None
    assert saved.analysis.table() == outcome.analysis.table()
    folder = executor.folder_of(spec)
    assert folder is not None
    (folder / "analysis.json").write_text("{")
    assert executor.read_saved(spec) is None, "it is repeated"
    (folder / "analysis.json").unlink()
    without_analysis = executor.read_saved(spec)
    assert without_analysis is not None
    assert without_analysis.analysis is None
    assert executor.execute(RunSpec("global", 0)).analysis is None
    plain = RunExecutor(small_experiment())
    assert plain.execute(spec).analysis is None
    assert plain.folder_of(spec) is None
    assert executor.for_worker().analyzes
