"""The search for parameters of a method."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from srfca.errors import InputError
from srfca.experiments import config, runner
from srfca.experiments.experiment import Experiment
from srfca.experiments.tune import Trial, tune
from srfca.methods import METHODS
from srfca.methods._common.search_space import Choices, Layers, Percentages, Range
from srfca.methods.sr_fca import SRFCA

SMALL = ["num_clients=8", "rotations=2", "steps=10", "refine_steps=1", "hidden=8"]


def digits(*settings: str) -> Experiment:
    return config.load("rotated-digits").set([*SMALL, *settings])


def without_seconds(trials: list[Trial]) -> list[Trial]:
    return [replace(trial, seconds=0) for trial in trials]


def test_trials_are_ranked_and_scored_like_runs() -> None:
    finished: list[Trial] = []
    ranked = tune(digits(), trials=4, seeds=2, on_finish=finished.append)
    assert [trial.number for trial in finished] == [0, 1, 2, 3]
    assert finished[0].settings == ("sr-fca.lr=0.5", "sr-fca.trim=0.05", "sr-fca.threshold=auto")
    assert sorted(finished, key=lambda t: (-t.score, t.number)) == ranked
    experiment = digits(*ranked[0].settings)
    scores = []
    for seed in (1000, 1001):
        federation = runner.make_federation(experiment, seed)
        run = runner.run_method(experiment, "sr-fca", federation, seed)
        scores.append(run.metrics["validation_accuracy"])
    assert ranked[0].accuracy == pytest.approx(sum(scores) / 2)


def test_a_stopped_search_ends_like_one_that_was_not_stopped(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    tune(digits(), trials=2, out=stopped)
    journal = stopped / "journal.log"
    with journal.open("a") as file:
        file.write('{"op_code":4,"half')
    finished: list[Trial] = []
    resumed = tune(digits(), trials=13, out=stopped, on_finish=finished.append)
    assert [trial.number for trial in finished] == list(range(2, 13))
    assert without_seconds(resumed) == without_seconds(tune(digits(), trials=13))
    best = json.loads((stopped / "best.json").read_text())
    assert best["best"]["settings"] == list(resumed[0].settings)
    assert len(best["trials"]) == 13
    again = tune(digits(), trials=5, out=stopped)
    assert without_seconds(again) == without_seconds(resumed), "nothing is left to do"


def test_the_search_stays_in_its_ranges() -> None:
    settings = [dict(s.split("=") for s in trial.settings) for trial in tune(digits(), trials=12)]
    assert all(0.05 <= float(s["sr-fca.lr"]) <= 5 for s in settings)
    assert all(0 <= float(s["sr-fca.trim"]) <= 0.4 for s in settings)
    endings = {s["sr-fca.threshold"][-1] for s in settings}
    assert endings == {"o", "%"}, "auto and quantiles"


def test_the_first_trial_is_the_experiment_without_changes() -> None:
    [first] = tune(digits("threshold=30%", "trim=0.2"), trials=1)
    assert first.settings == ("sr-fca.lr=0.5", "sr-fca.trim=0.2", "sr-fca.threshold=30%")
    for wrong in ("1.5", "12.5%", "99%"):
        with pytest.raises(InputError, match=f"from 5% to 95%, not {wrong}: leave it out"):
            tune(digits(f"threshold={wrong}"), trials=1)


def test_a_failed_trial_counts_as_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = SRFCA.fit

    def fail_unless_unchanged(self: SRFCA, *arguments: Any, **named: Any) -> Any:
        if self.local.lr != 0.5:
            raise InputError("local training diverged for client '3'")
        return fit(self, *arguments, **named)

    monkeypatch.setattr(SRFCA, "fit", fail_unless_unchanged)
    ranked = tune(digits(), trials=3)
    assert [trial.number for trial in ranked] == [0, 1, 2]
    assert ranked[0].error is None
    assert ranked[1].error == ranked[2].error == "local training diverged for client '3'"
    assert ranked[1].accuracy is ranked[1].loss is None


def test_a_search_in_which_all_trials_fail_says_why() -> None:
    with pytest.raises(InputError, match=r"none of 2 trials succeeded; the first: .*diverged"):
        tune(digits("lr=1e30"), trials=2)


def test_the_loss_decides_if_targets_are_not_classes() -> None:
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
    with pytest.raises(InputError, match=r"journal.log is not the journal of a search"):
        tune(digits(), trials=2, out=tmp_path)


def test_settings_of_other_methods_do_not_matter_to_a_search(tmp_path: Path) -> None:
    tune(digits(), trials=1, out=tmp_path)
    assert len(tune(digits("ifca.restarts=2"), trials=1, out=tmp_path)) == 1


def test_requirements_of_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="tuning needs validation data"):
        tune(digits("validation=0"), trials=1)
    with pytest.raises(InputError, match="trials must be at least 1, not 0"):
        tune(digits(), trials=0)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"needs optuna.*srfca\[tune\]"):
        tune(digits(), trials=1)


@pytest.mark.parametrize(
    ("method", "first"),
    [
        ("ifca", ("ifca.lr=0.5", "ifca.start=random")),
        ("cfl:paper", ("cfl:paper.lr=0.5", "cfl:paper.eps1=25%", "cfl:paper.eps2=20%")),
        ("FedSoft", ("fedsoft.lr=0.15", "fedsoft.mu=0.03", "fedsoft.predicts_with=center")),
        ("fedgroup", ("fedgroup.lr=0.5", "fedgroup.pretrain_steps=50", "fedgroup.measure=edc")),
        ("oracle", ("oracle.lr=0.5",)),
        (
            "sr-fca-literal",
            ("sr-fca-literal.lr=0.5", "sr-fca-literal.trim=0.1", "sr-fca-literal.threshold=20%"),
        ),
        ("fedper", ("fedper.lr=0.5",)),
        ("fedrep", ("fedrep.lr=0.5", "fedrep.head_steps=2", "fedrep.body_steps=3")),
        ("ditto", ("ditto.lr=0.5", "ditto.mu=1", "ditto.fine_tune_lr=0.1")),
        ("apfl", ("apfl.lr=0.5", "apfl.alpha=0.1", "apfl.alpha_lr=0.005")),
    ],
)
def test_every_method_can_be_tuned(method: str, first: tuple[str, ...]) -> None:
    trials = sorted(tune(digits(), method, trials=3), key=lambda trial: trial.number)
    assert trials[0].settings == first
    assert all(trial.error is None for trial in trials)
    assert len({trial.settings for trial in trials}) == 3


def test_what_methods_declare_to_be_searched_are_their_parameters() -> None:
    for key, method in METHODS.items().items():
        for name, space in method.searched.items():
            default: Any = next(field.default for field in fields(method) if field.name == name)
            match space:
                case Range(low=low, high=high):
                    assert default is None or low <= default <= high or space.divided_by, (
                        key,
                        name,
                    )
                    divisor = space.divided_by
                    assert (
                        divisor is None
                        or divisor in list(method.searched)[: list(method.searched).index(name)]
                    )
                case Layers(most=most):
                    assert 1 <= default <= most, (key, name)
                case Choices(values=values):
                    assert default in values, (key, name)
                case Percentages(word=word):
                    assert default == word or str(default).endswith("%"), (key, name)


def test_no_trial_of_pfedme_has_rates_that_it_refuses() -> None:
    trials = tune(digits("pfedme.mu=15", "pfedme.outer_lr=0.005"), "pfedme", trials=12)
    settings = [dict(s.split("=") for s in trial.settings) for trial in trials]
    products = [float(s["pfedme.mu"]) * float(s["pfedme.outer_lr"]) for s in settings]
    assert all(trial.error is None for trial in trials)
    assert max(products) <= 1
    assert len(set(products)) > 10
    first = next(s for trial, s in zip(trials, settings, strict=True) if trial.number == 0)
    assert (first["pfedme.mu"], first["pfedme.outer_lr"]) == ("15", "0.005")


def test_layers_are_searched_where_the_model_leaves_a_choice() -> None:
    trials = tune(digits("hidden=[8,8,8]"), "fedper", trials=12)
    tried = {dict(s.split("=") for s in t.settings)["fedper.head_layers"] for t in trials}
    assert tried == {"1", "2", "3"}
    assert all(trial.error is None for trial in trials)


def test_a_method_that_needs_the_number_of_clusters_is_given_the_true_one() -> None:
    [trial] = tune(digits(), "ifca", trials=1)
    experiment = digits("ifca.k=2")
    federation = runner.make_federation(experiment, 1000)
    run = runner.run_method(experiment, "ifca", federation, 1000)
    assert trial.accuracy == pytest.approx(run.metrics["validation_accuracy"])


def test_a_folder_keeps_the_search_of_one_method(tmp_path: Path) -> None:
    tune(digits(), "global", trials=1, out=tmp_path)
    assert json.loads((tmp_path / "best.json").read_text())["method"] == "global"
    with pytest.raises(InputError, match="of another experiment or of other settings"):
        tune(digits(), "local", trials=1, out=tmp_path)
