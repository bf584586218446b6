"""The federations of the field, and the runs on them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from srfca import Partition
from srfca.errors import InputError
from srfca.experiments import config, field, runner
from srfca.experiments.compare import execute
from srfca.experiments.parallel import limited_threads
from srfca.experiments.suite import SuiteExecutor
from tests.experiments.small import SMALL, small_experiment
from tests.experiments.test_saved import without_seconds


def test_every_federation_loads_and_its_runs_can_be_made() -> None:
    for suite in ("skew", "fedrc"):
        for federation in field.SUITES[suite]:
            experiment = field.load(federation, quick=True)
            assert len(field.run_specs(experiment, field.METHODS, [0, 1], 50)) == 12
    flux = {f.name: f for f in field.SUITES["flux"]}
    experiment = field.load(flux["flux-cifar10/labels/6"])
    assert experiment.name == "flux-cifar10/labels/6"
    settings = experiment.sections["data"]
    assert (settings["dataset"], settings["shift"], settings["level"]) == ("cifar10", "labels", 6)


def test_the_default_is_one_suite() -> None:
    assert field.select() == list(field.SUITES["skew"])
    assert field.select(["fedrc", "fedrc"]) == list(field.SUITES["fedrc"])


def test_names_select_federations_experiments_and_files(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[data]\nname = "rotated_digits"\n')
    names = ["fashion-outliers", "flux-mnist/labels/3", "rotated-digits", "fashion-outliers"]
    selected = field.select(only=[*names, str(tmp_path / "mine.toml")])
    assert [federation.name for federation in selected] == [*names[:3], "mine"]
    assert len(field.select(only=["flux-mnist"])) == 32


@pytest.mark.parametrize(
    ("suites", "only", "message"),
    [
        (["skews"], [], "unknown suite 'skews': did you mean 'skew'"),
        ([], ["flux-mnis"], "did you mean 'flux-mnist'"),
        ([], ["flux-mnist/labels/9"], "unknown federation"),
        ([], ["a/synthetic.toml", "synthetic"], "two federations have the name 'synthetic'"),
    ],
)
def test_unknown_names_are_refused(suites: list[str], only: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        field.select(suites, only)


def test_missing_data_are_noticed(tmp_path: Path) -> None:
    assert field.missing_data(config.load("rotated-digits"), tmp_path) is None
    problem = field.missing_data(config.load("flux-cifar10"), tmp_path)
    assert problem is not None
    assert "srfca data get cifar10" in problem


def test_all_methods_but_sr_fca_fine_tune() -> None:
    specs = field.run_specs(small_experiment(), ["sr-fca", "local", "fedem"], [3], 7)
    assert [spec.settings for spec in specs] == [
        (), ("local.fine_tune_steps=7",), ("fedem.fine_tune_steps=7", "fedem.k=3"),
    ]  # fmt: skip
    assert str(specs[1]) == "rotated-digits, Local seed 3"
    assert field.run_specs(small_experiment(), ["local"], [3], 0)[0].settings == ()


def test_the_number_of_clusters_is_that_of_the_data() -> None:
    experiment = config.load("flux-mnist")
    assert experiment.clusters == "drawn"
    assert runner.make_method(experiment, "ifca", Partition([0, 1, 2, 0, 3])).k == 4


def test_the_number_of_threads_is_restored() -> None:
    before = torch.get_num_threads()
    with limited_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with limited_threads(None):
        assert torch.get_num_threads() == before


def test_runs_of_several_experiments_are_one_list(tmp_path: Path) -> None:
    federations = field.select(only=["rotated-digits", "synthetic"])
    loaded = [field.load(federation, quick=True) for federation in federations]
    small = [SMALL, ["num_clients=8", "steps=4", "refine_steps=1"]]
    pairs = zip(loaded, small, strict=True)
    experiments = {experiment.name: experiment.set(settings) for experiment, settings in pairs}
    specs = [
        spec
        for experiment in experiments.values()
        for spec in field.run_specs(experiment, ["sr-fca", "ifca"], [0, 1], 2)
    ]
    serial = execute(SuiteExecutor(experiments, "cpu"), specs)
    assert [run["experiment"] for run in serial.metrics] == [
        *["rotated-digits"] * 4, *["synthetic"] * 4,
    ]  # fmt: skip
    assert {run["k"] for run in serial.metrics if run["method"] == "ifca"} == {2}
    at_once = execute(SuiteExecutor(experiments, "cpu", out=tmp_path), specs, jobs=2)
    assert without_seconds(at_once.metrics) == without_seconds(serial.metrics)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rotated-digits", "synthetic"]
    assert execute(SuiteExecutor(experiments, "cpu", out=tmp_path), specs).reused == 8
