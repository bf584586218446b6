"""``srfca tune``."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import QUICK, srfca


def test_the_best_trial_and_how_to_use_it(tmp_path: Path) -> None:
    command = ("tune", "rotated-digits", "--out", str(tmp_path), *QUICK)
    done = srfca(*command, "--trials", "2")
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["trial 0", "trial 1"]
    assert "rotated-digits, SR-FCA, 2 trials, 0 failed" in done.stdout
    assert "validation accuracy" in done.stdout
    assert "Best: --set sr-fca.lr=" in done.stdout
    more = srfca(*command, "--trials", "3", "--json")
    assert more.stderr == ""
    summary = json.loads(more.stdout)
    assert summary == json.loads((tmp_path / "best.json").read_text())
    assert len(summary["trials"]) == 3
    usage = srfca(*command, "--trials", "0")
    assert usage.returncode == 2
