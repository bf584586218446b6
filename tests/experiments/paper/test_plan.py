"""What is run for the paper's tables."""

from __future__ import annotations

from typing import Any

import pytest

from srfca.errors import InputError
from srfca.experiments import config
from srfca.experiments.paper import plan
from srfca.experiments.paper.ablations import load_ablations
from srfca.experiments.paper.published import published
from srfca.experiments.paper.studies import AblationStudy, ReducedReproduction


def test_every_row_can_be_run_on_every_experiment() -> None:
    experiments = plan.load_experiments([], quick=False, settings=[])
    specs = plan.run_specs(experiments, plan.load_rows().values(), range(3))
    assert {spec.experiment for spec in specs} == set(plan.EXPERIMENTS)
    assert len(set(specs)) == len(specs)
    without_truth = {spec.method for spec in specs if spec.experiment == "femnist"}
    assert "oracle" not in without_truth
    assert {spec.k for spec in specs if (spec.experiment, spec.row) == ("femnist", "ifca")} == {
        2, 3, 4, 5,
    }  # fmt: skip
    assert {
        spec.k for spec in specs if (spec.experiment, spec.row) == ("rotated-mnist", "fedsoft")
    } == {4}


def test_rows_have_settings_of_their_own() -> None:
    row = plan.Row("r", "R", "ifca", ("restarts=5",), "true", {"synthetic": ("lr=0.1",)})
    (spec,) = plan.run_specs([config.load("synthetic")], [row], [7])
    assert spec.settings == ("ifca.restarts=5", "ifca.lr=0.1", "ifca.k=2")
    assert str(spec) == "synthetic, r K=2 seed 7"
    assert spec.label == "r-k2-seed7"


def test_a_row_may_be_based_on_another() -> None:
    sections: dict[str, dict[str, Any]] = {
        "a": {"method": "ifca", "settings": ["restarts=2"], "experiments": {"synthetic": ["k=3"]}},
        "b": {"based_on": "a", "settings": ["start=distant"]},
    }
    row = plan.make_rows(sections)["b"]
    assert (row.method, row.settings) == ("ifca", ("restarts=2", "start=distant"))
    assert row.experiments == {"synthetic": ("k=3",)}
    with pytest.raises(InputError, match="unknown based_on of row b 'a'"):
        plan.make_rows({"b": {"based_on": "a"}})
    with pytest.raises(InputError, match="unknown key of row b 'setting'"):
        plan.make_rows({"b": {"setting": []}})


def test_every_ablation_can_be_run() -> None:
    study = AblationStudy.load([], quick=False, settings=[])
    specs = plan.run_specs(study.experiments, study.rows.values(), [0])
    assert len(specs) == 2 * len(study.rows)
    used = {key for rows in load_ablations().groups.values() for key in rows}
    assert used == set(study.rows)


def test_reduced_experiments_are_smaller() -> None:
    study = ReducedReproduction.load([], quick=False, settings=["lr=0.5"])
    for experiment in study.experiments:
        full = config.load(experiment.name)
        assert experiment.sections["data"]["num_clients"] < full.sections["data"]["num_clients"]
        assert experiment.sections["local_training"]["lr"] == 0.5
    with pytest.raises(InputError, match="unknown experiment of the paper 'synthetic'"):
        ReducedReproduction.load(["synthetic"], quick=False, settings=[])


def test_published_figures_are_of_rows_and_experiments() -> None:
    rows = plan.load_rows()
    for figures in published().values():
        assert set(figures) <= set(plan.EXPERIMENTS)
        assert all(set(of_experiment) <= set(rows) for of_experiment in figures.values())


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="unknown row 'sr-fac': did you mean 'sr-fca'"):
        plan.select(plan.load_rows(), ["sr-fac"])
    with pytest.raises(InputError, match="unknown experiment of the paper 'rotated-digits'"):
        plan.load_experiments(["rotated-digits"], quick=True, settings=[])
