"""Experiments in TOML files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from srfca.errors import InputError
from srfca.experiments import config, runner
from srfca.experiments.user_data import experiment_from_data
from srfca.methods import METHODS
from tests.experiments.small import ROUND_ROBIN, write_npz

COINS = """
clusters = 2
k = [2, 5]
set = ["lr=0.25"]
quick = ["steps=2"]

[data]
name = "tests.experiments.small:coin_tosses"
samples = 30

[model]
name = "linear"
inputs = 1
outputs = 2

[local_training]
steps = 6
batch_size = 10

["tests.experiments.small:RoundRobin"]
k = 3
"""


def test_every_preset_loads_and_describes_itself() -> None:
    assert {"synthetic", "rotated-digits"} <= set(config.names())
    for name in config.names():
        experiment = config.load(name)
        assert experiment.description
        for method in METHODS.keys():  # noqa: SIM118
            assert runner.make_method(experiment, method).local.steps >= 1


def test_every_experiment_has_numbers_of_clusters(tmp_path: Path) -> None:
    assert config.load("rotated-mnist").k == (2, 4, 6)
    assert config.load("femnist").k == (2, 3, 4, 5)
    assert experiment_from_data(write_npz(tmp_path / "data.npz")).k == (2, 3, 4)
    assert all(min(config.load(name).k) >= 2 for name in config.names())


def test_an_experiment_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "coins.toml").write_text(COINS)
    experiment = config.load(str(tmp_path / "coins.toml"))
    assert (experiment.name, experiment.clusters, experiment.k) == ("coins", "2", (2, 5))
    assert (experiment.description, experiment.quick) == ("", ("steps=2",))
    assert experiment.sections["data"]["samples"] == 30
    assert runner.make_method(experiment, "global").local.lr == 0.25
    assert runner.make_method(experiment, ROUND_ROBIN).k == 3
    federation = runner.make_federation(experiment, seed=1)
    assert federation.sizes.tolist() == [27] * 4, "a tenth is held out"
    metrics = runner.run_method(experiment, ROUND_ROBIN, federation, seed=1).metrics
    assert (metrics["experiment"], metrics["method"]) == ("coins", ROUND_ROBIN)
    assert (metrics["name"], metrics["num_clusters"]) == ("Round robin", 3)


def test_a_model_and_a_data_set_without_annotations_in_a_file(tmp_path: Path) -> None:
    text = COINS.replace("coin_tosses", "untyped_coins").replace("samples = 30", "num_clients = 6")
    model = 'name = "torch.nn:Identity"'
    text = text.replace('name = "linear"\ninputs = 1\noutputs = 2', model)
    (tmp_path / "coins.toml").write_text(text)
    experiment = config.load(str(tmp_path / "coins.toml"))
    assert experiment.sections["data"]["num_clients"] == 6
    with pytest.raises(InputError, match="no parameters to train"):
        runner.make_federation(experiment, seed=0)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("[local_training]", "[local_trainin]", "did you mean 'local_training'"),
        ("[local_training]", "[work]", "unknown section of .*coins.toml 'work'"),
        ("clusters = 2", "cluster = 2", "unknown key of .*coins.toml 'cluster'"),
        ("clusters = 2", "clusters =", "coins.toml is not a TOML file"),
        ("steps = 6", "step = 6", "unknown setting 'local_training.step': did you mean"),
        ("steps = 6", "steps = 6.5", "local_training.steps must be a whole number, not 6.5"),
        ('"lr=0.25"', "0.25", "set of .*coins.toml must be a list of strings"),
        ("k = [2, 5]", 'k = "two"', "k of .*coins.toml must be a list of whole numbers"),
        ('name = "linear"', 'name = "linaer"', "unknown model 'linaer': did you mean 'linear'"),
        ('name = "linear"', "", r"section \[model\] must have a name"),
        ("small:coin_tosses", "small:coins", "has no attribute 'coins'"),
        ("small:coin_tosses", "small:X", "must be a function that returns ClientData"),
        ("small:RoundRobin", "small:SquareRobin", "has no attribute 'SquareRobin'"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, before: str, after: str, message: str) -> None:
    (tmp_path / "coins.toml").write_text(COINS.replace(before, after))
    assert before in COINS
    with pytest.raises(InputError, match=message):
        config.load(str(tmp_path / "coins.toml"))


def test_a_file_must_set_what_has_no_default(tmp_path: Path) -> None:
    (tmp_path / "coins.toml").write_text(COINS.replace("inputs = 1", ""))
    experiment = config.load(str(tmp_path / "coins.toml"))
    with pytest.raises(InputError, match=r"section \[model\] of the experiment must set inputs"):
        runner.make_federation(experiment, seed=0)
    assert runner.make_federation(experiment.set(["inputs=1"]), seed=0)


def test_unknown_experiments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown experiment 'rotated-digit': did you mean"):
        config.load("rotated-digit")
    with pytest.raises(InputError, match=r"cannot read the experiment .*nothing.toml"):
        config.load(str(tmp_path / "nothing.toml"))


def test_the_keys_in_the_documentation_are_those_of_a_file() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "stability.md").read_text("utf-8")
    keys = re.search(r"the keys of an experiment's TOML file: (.*?), and the sections", text)
    assert keys is not None
    assert tuple(re.findall("`(.*?)`", keys[1])) == config._KEYS
