"""``srfca theory``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import srfca


def test_theory_measures_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = srfca("theory", "kl", "contraction", "--quick", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Without the factor d the proposition is right" in done.stdout
    assert "The bound holds at every T." in done.stdout
    names = {"theory-kl.png", "theory-contraction.png"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_an_unknown_figure_is_refused() -> None:
    done = srfca("theory", "klm", "--quick")
    assert done.returncode == 2
    assert "did you mean 'kl'" in done.stderr
