"""A method with settings of its own is a line of its own in a comparison."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from srfca.errors import InputError
from srfca.experiments import config, runner, saved
from srfca.experiments.compare import compare, run_specs
from srfca.experiments.executor import RunExecutor
from srfca.experiments.experiment import Experiment, split_assignment
from srfca.methods import CFL
from srfca.methods.registry import METHODS, method_name, method_of, split_variant
from srfca.report.summary import needs_truth, results

FIVE = "ifca:restarts=5"


def digits(*settings: str) -> Experiment:
    small = ["num_clients=8", "rotations=2", "steps=10", "hidden=8"]
    return config.load("rotated-digits").set([*small, *settings])


def test_a_key_names_a_method_its_settings_and_its_line() -> None:
    assert split_variant("ifca:restarts=5:start=clients") == (
        "ifca",
        ("restarts=5", "start=clients"),
    )
    assert split_variant("srfca.methods.cfl:CFL:eps1=25%:paper")[0] == "srfca.methods.cfl:CFL"
    assert method_of("cfl:paper") is method_of("srfca.methods.cfl:CFL:paper") is CFL
    assert method_name("cfl:paper") == "CFL, the paper's rule"
    assert method_name("ifca:restarts=5:start=clients") == "IFCA, restarts=5, start=clients"
    assert needs_truth("oracle:weighted=false")


def test_every_named_variant_can_be_run() -> None:
    for key, method in METHODS.items().items():
        for name in method.variants:
            variant = f"{key}:{name}"
            experiment = digits().with_methods([variant])
            made = runner.make_method(experiment, variant)
            assert isinstance(made, method)
            assert made != runner.make_method(experiment, key)


def test_a_variant_has_the_settings_of_its_method_and_its_own() -> None:
    experiment = digits().with_methods([FIVE]).set(["ifca.lr=0.3", "restarts=2", "k=2"])
    plain, five = (runner.make_method(experiment, key) for key in ("ifca", FIVE))
    assert (plain.restarts, five.restarts) == (2, 5), "its own settings come first"
    assert plain.local == five.local
    assert five.local.lr == 0.3
    assert (plain.k, five.k) == (2, 2)
    changed = experiment.set([f"{FIVE}.lr=0.7", f"{FIVE}.restarts=4"])
    assert runner.make_method(changed, FIVE).local.lr == 0.7
    assert runner.make_method(changed, FIVE).restarts == 4
    assert runner.make_method(changed, "ifca") == plain
    again = pickle.loads(pickle.dumps(changed))  # as another process gets it
    assert runner.make_method(again, FIVE) == runner.make_method(changed, FIVE)


def test_assignments_to_variants() -> None:
    assert split_assignment("IFCA:lr=0.5.k=4") == ("ifca:lr=0.5", "k", "4")
    assert split_assignment("cfl:paper.eps1=30%") == ("cfl:paper", "eps1", "30%")
    assert split_assignment("a.b:Class.lr = 0.5") == ("a.b:Class", "lr", "0.5")


def test_settings_of_a_variant_are_used_by_a_run_of_it_alone() -> None:
    experiment = digits().with_methods([FIVE])
    experiment.require_used(["ifca.lr=0.3", f"{FIVE}.lr=0.3", "participation=0.5"], [FIVE])
    with pytest.raises(InputError, match="no effect, because ifca:restarts=5 does not run"):
        experiment.require_used([f"{FIVE}.lr=0.3"], ["ifca"])


def test_variants_are_lines_of_their_own(tmp_path: Path) -> None:
    methods = ["ifca", "ifca:restarts=2", "cfl:paper"]
    comparison = compare(digits(), methods, seeds=[0], k=[2, 3], out=tmp_path)
    assert not comparison.failures
    assert results(comparison.metrics).names == (
        ["IFCA, K=2", "IFCA, K=3", "IFCA, mean over K"]
        + [f"IFCA, restarts=2, {k}" for k in ("K=2", "K=3", "mean over K")]
        + ["CFL, the paper's rule"]
    )
    once, twice = (comparison.metrics[place] for place in (0, 2))
    assert twice["local_steps"] == 2 * once["local_steps"]
    assert compare(digits(), methods, seeds=[0], k=[2, 3], out=tmp_path).reused == 5
    names = sorted(path.name.rpartition("-")[0] for path in tmp_path.iterdir())
    assert names[0] == "cfl.paper-seed0"
    assert names[-1] == "ifca.restarts=2-k3-seed0"


def test_runs_of_a_variant_and_of_its_method_differ() -> None:
    experiment = digits().with_methods([FIVE])
    assert saved.run_digest(experiment, "ifca", 0) != saved.run_digest(experiment, FIVE, 0)
    specs = run_specs(experiment, ["ifca", FIVE], k=[2])
    assert len({RunExecutor(experiment, out=Path("x")).folder_of(spec) for spec in specs}) == 2
    assert str(specs[1]) == "IFCA, restarts=5 K=2 seed 0"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("ifca:restart=5", "unknown setting 'ifca:restart=5.restart'.*restarts"),
        ("ifca:restarts=few", "restarts of ifca:restarts=few must be a whole number"),
        ("cfl:papers", "variant of CFL 'papers'.*paper"),
        ("ifka:restarts=5", "ifka"),
    ],
)
def test_wrong_variants_are_named(key: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        digits().with_methods([key])
