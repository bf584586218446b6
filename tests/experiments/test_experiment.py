"""Sections and settings of an experiment."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from srfca import LocalTraining
from srfca.errors import InputError
from srfca.experiments import config, runner
from srfca.experiments.user_data import experiment_from_data
from srfca.methods import METHODS
from srfca.methods.sr_fca import SRFCA
from tests.experiments.small import ROUND_ROBIN, small_experiment, write_npz


def test_settings_reach_what_they_name() -> None:
    experiment = config.load("rotated-digits").set([
        "trim=0.2", "threshold=1.5", "local_training.lr=0.5", "hidden=32,16", "batch_size=none",
        "participation=0.5", "resample=true", "merge_threshold = auto",
    ])  # fmt: skip
    method = runner.make_method(experiment, "sr-fca")
    assert (method.trim, method.threshold, method.merge_threshold) == (0.2, 1.5, "auto")
    assert method.local == LocalTraining(steps=200, batch_size=None, lr=0.5, resample=True)
    assert method.resample, "a bare name is set in every section that has it"
    assert runner.make_method(experiment, "global").participation == method.participation == 0.5
    assert experiment.arguments("model")["hidden"] == (32, 16)
    one = config.load("rotated-digits").set(["sr-fca.participation=0.5"])
    assert runner.make_method(one, "global").participation == 1.0


def test_a_method_can_have_its_own_local_training() -> None:
    experiment = config.load("rotated-digits").set(["oracle.lr=0.25", "oracle.steps=7"])
    common = runner.make_method(experiment, "global").local
    assert runner.make_method(experiment, "oracle").local == replace(common, lr=0.25, steps=7)
    changed = experiment.set(["lr=0.125"])
    assert runner.make_method(changed, "oracle").local == replace(common, lr=0.125, steps=7)
    assert runner.make_method(changed, "global").local == replace(common, lr=0.125)
    again = config.load("rotated-digits").set(["oracle.lr=0.25", "lr=0.5"])
    assert runner.make_method(again, "oracle").local.lr == 0.5


def test_a_parameter_of_the_method_comes_before_one_of_local_training() -> None:
    experiment = config.load("rotated-digits").set(["ditto.mu=0.25", "local_training.mu=0.5"])
    ditto = runner.make_method(experiment, "ditto")
    assert (ditto.mu, ditto.local.mu) == (0.25, 0.5)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trimm=0.2", "unknown setting 'trimm': did you mean 'trim'"),
        (
            "local_training.lrr=0.2",
            "unknown setting 'local_training.lrr': did you mean 'local_training.lr'",
        ),
        ("local_trainin.lr=0.2", "unknown section 'local_trainin': did you mean 'local_training'"),
        ("zzzzzz=1", "unknown setting 'zzzzzz': choose from .*batch_size.*trim"),
        ("trim", "key=value"),
        ("trim=a lot", "trim must be a number, not 'a lot'"),
        ("steps=2.5", "steps must be a whole number, not '2.5'"),
        ("batch_size=some", "batch_size must be 'none' or a whole number"),
        ("resample=maybe", "resample must be true or false"),
        ("hidden=a,b", "hidden must be a list of whole numbers"),
        ("optimizer=adan", "optimizer must be one of sgd, adam, not 'adan': did you mean 'adam'"),
        ("graph=clique", "graph must be one of .*, not 'clique': did you mean 'cliques'"),
        ("seed=3", "unknown setting 'seed'"),
        ("nowhere:Method.lr=1", "there is no module 'nowhere'"),
    ],
)
def test_wrong_settings_are_refused(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        config.load("rotated-digits").set([setting])


def test_a_value_that_only_some_methods_allow_is_refused_by_the_others() -> None:
    experiment = config.load("rotated-digits").set(["threshold=45%"])
    assert runner.make_method(experiment, "sr-fca").threshold == "45%"
    with pytest.raises(InputError, match="must be a number or 'auto', not '45%'"):
        runner.make_method(experiment, "pacfl")


def test_a_method_by_module_and_class_has_a_section() -> None:
    plain = small_experiment()
    assert ROUND_ROBIN not in plain.sections
    assert plain.with_methods(["sr-fca"]) is plain
    experiment = plain.with_methods([ROUND_ROBIN, "local"]).set(["k=3", "lr=0.25"])
    method = runner.make_method(experiment, ROUND_ROBIN)
    assert (method.k, method.local.lr) == (3, 0.25)
    assert experiment.arguments("ifca")["k"] == 3
    directly = plain.set([f"{ROUND_ROBIN}.k=5", f"{ROUND_ROBIN}.lr=0.5"])
    assert runner.make_method(directly, ROUND_ROBIN).k == 5
    assert runner.make_method(directly, ROUND_ROBIN).local.lr == 0.5
    assert runner.make_method(directly, "local").local.lr == plain.local_training("local")["lr"]


def test_settings_of_the_experiment_reach_methods_by_module_and_class() -> None:
    cifar = config.load("rotated-cifar10")
    assert cifar.settings == ("participation=0.5",)
    key = "srfca.methods.fedavg:FedAvg"
    assert runner.make_method(cifar.with_methods([key]), key).participation == 0.5
    cifar.with_methods([ROUND_ROBIN])  # has no participation


def test_methods_that_cannot_run_are_refused() -> None:
    with pytest.raises(InputError, match="Nameless' must declare 'name', a string"):
        small_experiment().with_methods(["tests.experiments.small:Nameless"])
    with pytest.raises(InputError, match=r"must be a subclass of srfca\.methods\.Method"):
        small_experiment().with_methods(["tests.experiments.small:coin_tosses"])
    with pytest.raises(InputError, match="unknown method 'srfca': did you mean 'sr-fca'"):
        runner.make_method(config.load("synthetic"), "srfca")


def test_every_registered_method_has_a_section() -> None:
    assert set(METHODS.keys()) <= set(small_experiment().sections)


def test_methods_get_what_the_preset_says() -> None:
    method = runner.make_method(config.load("rotated-digits"), "sr-fca")
    assert isinstance(method, SRFCA)
    assert method == SRFCA(refine_steps=2, local=LocalTraining(steps=200, batch_size=10, lr=0.5))


def test_an_experiment_can_be_pickled(tmp_path: Path) -> None:
    plain = pickle.loads(pickle.dumps(small_experiment()))
    assert plain == small_experiment()
    experiment = experiment_from_data(write_npz(tmp_path / "data.npz"), "linear").set(["steps=3"])
    copy = pickle.loads(pickle.dumps(experiment))
    assert copy.sections == experiment.sections
    assert copy.fingerprint == experiment.fingerprint
    assert len(runner.make_federation(copy, seed=0).client_ids) == 3
