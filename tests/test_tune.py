from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srfca.errors import InputError
from srfca.experiments import config, runner
from srfca.experiments.config import Experiment
from srfca.experiments.tune import Trial, tune
from srfca.methods import SRFCA
from tests.test_cli import QUICK, srfca

SMALL = ["num_clients=8", "rotations=2", "steps=10", "refine_steps=1", "hidden=8"]


def digits(*settings: str) -> Experiment:
    return config.load("rotated-digits").set([*SMALL, *settings])


def what(trials: list[Trial]) -> list[tuple[Any, ...]]:
    """All of the trials but the time that they took."""
    return [(t.number, t.settings, t.accuracy, t.loss, t.why) for t in trials]


def test_trials_are_ranked_and_score_what_a_run_scores() -> None:
    told: list[Trial] = []
    ranked = tune(digits(), trials=4, seeds=2, finished=told.append)
    assert [trial.number for trial in told] == [0, 1, 2, 3]
    assert told[0].settings == ("sr-fca.lr=0.5", "sr-fca.trim=0.1", "sr-fca.threshold=auto")
    assert sorted(told, key=lambda t: (-t.score, t.number)) == ranked
    experiment = digits(*ranked[0].settings)
    scores = []
    for seed in (1000, 1001):
        clients = runner.federation(experiment, seed)
        scores.append(runner.run(experiment, "sr-fca", clients, seed).row()["validation_accuracy"])
    assert ranked[0].accuracy == pytest.approx(sum(scores) / 2)


def test_a_search_that_was_stopped_ends_like_one_that_was_not(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    tune(digits(), trials=2, out=stopped)
    journal = stopped / "journal.log"
    with journal.open("a") as file:
        file.write('{"op_code":4,"half')
    told: list[Trial] = []
    again = tune(digits(), trials=13, out=stopped, finished=told.append)
    assert [trial.number for trial in told] == list(range(2, 13))
    assert what(again) == what(tune(digits(), trials=13))
    best = json.loads((stopped / "best.json").read_text())
    assert best["best"]["settings"] == list(again[0].settings)
    assert len(best["trials"]) == 13
    assert what(tune(digits(), trials=5, out=stopped)) == what(again), "nothing is left to do"


def test_rates_thresholds_and_trims_are_searched_in_their_ranges() -> None:
    settings = [dict(s.split("=") for s in trial.settings) for trial in tune(digits(), trials=12)]
    assert all(0.05 <= float(s["sr-fca.lr"]) <= 5 for s in settings)
    assert all(0 <= float(s["sr-fca.trim"]) <= 0.4 for s in settings)
    kinds = {s["sr-fca.threshold"][-1] for s in settings}
    assert kinds == {"o", "%"}, "auto and quantiles"


def test_the_first_trial_is_the_experiment_as_it_is() -> None:
    [first] = tune(digits("threshold=30%", "trim=0.2"), trials=1)
    assert first.settings == ("sr-fca.lr=0.5", "sr-fca.trim=0.2", "sr-fca.threshold=30%")
    for wrong in ("1.5", "12.5%", "99%"):
        with pytest.raises(InputError, match=f"from 5% to 95%, not {wrong}: leave it out"):
            tune(digits(f"threshold={wrong}"), trials=1)


def test_a_trial_that_fails_is_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = SRFCA.fit

    def sometimes(self: SRFCA, *arguments: Any, **named: Any) -> Any:
        if self.work.lr != 0.5:
            raise InputError("local training diverged for client '3'")
        return fit(self, *arguments, **named)

    monkeypatch.setattr(SRFCA, "fit", sometimes)
    ranked = tune(digits(), trials=3)
    assert [trial.number for trial in ranked] == [0, 1, 2]
    assert ranked[0].why is None
    assert ranked[1].why == ranked[2].why == "local training diverged for client '3'"
    assert ranked[1].accuracy is ranked[1].loss is None


def test_a_search_in_which_all_fail_says_why() -> None:
    with pytest.raises(InputError, match=r"none of 2 trials succeeded; the first: .*diverged"):
        tune(digits("lr=1e30"), trials=2)


def test_without_classes_the_loss_decides() -> None:
    small = ["dimension=5", "inputs=5", "num_clients=6", "samples=30", "steps=20"]
    ranked = tune(config.load("synthetic").set(small), trials=3)
    assert all(trial.accuracy is None for trial in ranked)
    losses = [trial.loss for trial in ranked if trial.loss is not None]
    assert losses == sorted(losses)


def test_a_folder_keeps_one_search(tmp_path: Path) -> None:
    tune(digits(), trials=1, out=tmp_path)
    for experiment, seeds in ((digits("steps=11"), 1), (digits(), 2)):
        with pytest.raises(InputError, match="of another experiment or of other settings"):
            tune(experiment, trials=2, seeds=seeds, out=tmp_path)
    with pytest.raises(InputError, match="of another experiment or of other settings"):
        tune(replace(digits(), fingerprint="other data of the same name"), trials=2, out=tmp_path)
    (tmp_path / "journal.log").write_text("{}\nnonsense\n")
    with pytest.raises(InputError, match=r"journal.log: is not the journal of a search"):
        tune(digits(), trials=2, out=tmp_path)


def test_what_tuning_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="tuning needs validation data"):
        tune(digits("validation=0"), trials=1)
    with pytest.raises(InputError, match="trials must be at least 1, not 0"):
        tune(digits(), trials=0)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"needs optuna.*srfca\[tune\]"):
        tune(digits(), trials=1)


def test_the_command_shows_the_best_and_how_to_use_it(tmp_path: Path) -> None:
    command = ("tune", "rotated-digits", "--out", str(tmp_path), *QUICK)
    done = srfca(*command, "--trials", "2")
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["trial 0", "trial 1"]
    assert "rotated-digits, 2 trials, 0 failed" in done.stdout
    assert "validation accuracy" in done.stdout
    assert "Best: --set sr-fca.lr=" in done.stdout
    more = srfca(*command, "--trials", "3", "--json")
    assert more.stderr == ""
    found = json.loads(more.stdout)
    assert found == json.loads((tmp_path / "best.json").read_text())
    assert len(found["trials"]) == 3
    usage = srfca(*command, "--trials", "0")
    assert usage.returncode == 2
