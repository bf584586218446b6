"""Runs under attack."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from srfca import InputError, Partition
from srfca.cli.tables import outcome_line
from srfca.experiments import config
from srfca.experiments.compare import execute
from srfca.experiments.stress import AttackedSpec, StressExecutor, num_misplaced, run_specs
from srfca.federation.middleware.attacks import ATTACKS
from srfca.report.stress import StressReport, as_csv, as_markdown
from tests.cli.command import srfca
from tests.experiments.small import small_experiment


def test_a_clean_run_and_each_attack_for_each_method_and_seed() -> None:
    specs = run_specs(small_experiment(), ["sr-fca", "global"], ["alie", "mimic"], [0, 1], 0.3)
    assert [(s.seed, s.method, s.attack) for s in specs[:4]] == [
        (0, "sr-fca", "none"), (0, "sr-fca", "alie"), (0, "sr-fca", "mimic"), (0, "global", "none"),
    ]  # fmt: skip
    assert len(specs) == 12
    trimmed = run_specs(small_experiment(), ["sr-fca", "global"], [], trim=0.25)
    assert [s.settings for s in trimmed] == [("sr-fca.trim=0.25",), ()]
    with pytest.raises(InputError, match="unknown attack"):
        run_specs(small_experiment(), ["global"], ["alias"])
    with pytest.raises(InputError, match="fraction of attackers"):
        run_specs(small_experiment(), ["global"], ["alie"], fraction=0.6)


def test_runs_are_saved_and_scored_for_honest_clients(tmp_path: Path) -> None:
    experiment = small_experiment()
    specs = run_specs(experiment, ["global"], ["label-flip", "scaling"], fraction=0.25)
    executor = StressExecutor(experiment, "cpu", None, tmp_path)
    first = execute(executor, specs)
    assert first.reused == 0
    assert not first.failures
    clean, flipped, scaled = first.metrics
    assert clean["attackers"] == flipped["attackers"]
    assert len(clean["attackers"]) == 2
    assert clean["honest"] == 6
    assert clean["misplaced"] is None
    honest = [
        accuracy
        for client, accuracy in zip(clean["client_ids"], clean["client_accuracies"], strict=True)
        if client not in clean["attackers"]
    ]
    assert clean["honest_accuracy"] == pytest.approx(np.mean(honest))
    for outcome in first.outcomes:
        assert outcome.metrics is not None
        assert f": {100 * outcome.metrics['honest_accuracy']:.2f} %" in outcome_line(outcome)
    assert flipped["labels"] == clean["labels"]
    assert flipped["client_losses"] != clean["client_losses"] != scaled["client_losses"]
    assert execute(executor, specs).reused == 3
    other = list(run_specs(experiment, ["global"], ["scaling"], fraction=0.375))
    assert execute(executor, other).reused == 0, "other attackers are another run"


def test_errors_are_captured() -> None:
    executor = StressExecutor(small_experiment(), "cpu")
    outcome = executor.execute(AttackedSpec("global", 0, settings=("local_training.lr=1e38",)))
    assert outcome.metrics is None
    assert "diverged" in str(outcome.error)


def test_misplaced_clients_are_honest_ones() -> None:
    truth = Partition([0, 0, 0, 1, 1, 1])
    assert num_misplaced(Partition([0, 0, 1, 1, 1, 1]), truth, np.array([0, 1, 3, 4, 5])) == 0
    assert num_misplaced(Partition([0, 0, 1, 1, 1, 1]), truth, np.arange(6)) == 1


@cache
def honest_clients(attack: str, seed: int, fraction: float, trim: float) -> tuple[float, int]:
    """Return the accuracy of the honest clients of rotated digits, and how many are misplaced."""
    executor = StressExecutor(config.load("rotated-digits"), "cpu")
    settings = (f"sr-fca.trim={trim}",)
    outcome = executor.execute(
        AttackedSpec("sr-fca", seed, settings=settings, attack=attack, fraction=fraction)
    )
    assert outcome.metrics is not None, outcome.error
    return outcome.metrics["honest_accuracy"], outcome.metrics["misplaced"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fraction", "trim", "cost"),
    [(0.025, 0.05, 0.01), (0.2, 0.25, 0.025)],
    ids=["one client", "a fifth"],
)
@pytest.mark.parametrize("attack", list(ATTACKS))
def test_attacks_cost_the_honest_clients_of_sr_fca_little(
    attack: str, fraction: float, trim: float, cost: float
) -> None:
    """40 clients; means over three seeds."""
    changes = []
    for seed in (31, 32, 33):
        clean, _ = honest_clients("none", seed, fraction, trim)
        accuracy, misplaced = honest_clients(attack, seed, fraction, trim)
        assert misplaced == 0
        changes.append(accuracy - clean)
    assert np.mean(changes) >= -cost


def metrics(attack: str, seed: int, accuracy: float, misplaced: int) -> dict[str, object]:
    return {
        "attack": attack, "seed": seed, "method": "sr-fca", "name": "SR-FCA",
        "honest_accuracy": accuracy, "honest_loss": 1.0, "misplaced": misplaced,
    }  # fmt: skip


def test_tables_have_the_mean_and_the_worst_difference() -> None:
    runs = [
        metrics("none", 0, 0.9, 0), metrics("none", 1, 0.8, 0),
        metrics("alie", 0, 0.89, 0), metrics("alie", 1, 0.75, 3),
    ]  # fmt: skip
    report = StressReport(runs, "title", ["note"])
    assert "| alie | 82.0 | -3.0 (-5.0) | 3 |" in as_markdown(report)
    assert "| none | 85.0 | - | 0 |" in as_markdown(report)
    assert as_csv(report).splitlines()[2].startswith("alie,SR-FCA,0.82")


def test_command(tmp_path: Path) -> None:
    options = ("--methods", "sr-fca", "--attacks", "sign-flip,high-losses", "--jobs", "1")
    small = ("--set", "num_clients=8", "--set", "steps=10", "--set", "rotations=2")
    table = tmp_path / "table.md"
    done = srfca("stress", "rotated-digits", *options, *small, "--table", str(table))
    assert done.returncode == 0, done.stderr
    assert "2 of 8 clients corrupt, trim 0.25" in done.stdout
    assert [line.split("|")[1].strip() for line in table.read_text().splitlines()[4:7]] == [
        "none", "sign-flip", "high-losses",
    ]  # fmt: skip
    wrong = srfca("stress", "rotated-digits", "--placement", "inside")
    assert wrong.returncode == 2
    assert "unknown placement 'inside'" in wrong.stderr
