"""Damaged folders of runs give the same result or a clear refusal."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tools import damage, kills


def test_random_damage_never_changes_a_result() -> None:
    counts = damage.damage_many(15, seed=7)
    assert counts["wrong"] == 0
    assert counts["same result"] > 0
    assert counts["clear refusal"] > 0


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    base, _, expected = damage.make_runs(tmp_path_factory.mktemp("runs"))
    return base, expected


@pytest.mark.parametrize("kind", list(dict.fromkeys(damage.DAMAGES)))
def test_each_kind_of_damage_to_a_journal(
    kind: damage.Damage, runs: tuple[Path, str], tmp_path: Path
) -> None:
    base, expected = runs
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    for name in damage.RESULTS:
        (copy / name).unlink()
    kind(sorted((copy / "journal").glob("*.safetensors"))[3], random.Random(1))
    outcome, reason = damage.outcome_of(copy, expected)
    assert outcome == ("same result" if kind is damage.delete else "clear refusal"), reason


@pytest.mark.slow
def test_killed_processes_resume_to_the_same_result(tmp_path: Path) -> None:
    total, wrong = kills.kill_many(2, 0, tmp_path)
    assert total >= 2
    assert wrong == []
