"""Experiments on a user's data."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from srfca.errors import InputError
from srfca.experiments import runner
from srfca.experiments.user_data import experiment_from_data
from tests.experiments.small import NETWORKS, RNG, SPLIT, write_npz


def test_integer_inputs_become_floating_point(tmp_path: Path) -> None:
    x = RNG.integers(0, 3, (12, 4, 4), dtype=np.uint8)
    path = write_npz(tmp_path / "data.npz", x=x, split=SPLIT)
    experiment = experiment_from_data(path).set(["hidden=7"])
    assert experiment.arguments("model") == {"inputs": 16, "hidden": (7,), "outputs": 2}
    federation = runner.make_federation(experiment, seed=0)
    assert federation.initial_model(0).shape == (16 * 7 + 7 + 7 * 2 + 2,)
    schema = federation.schema
    assert schema is not None
    assert schema.encode({"x": x[:2]}).dtype == federation.data.train.x.dtype
    metrics = runner.run_method(experiment.set(["steps=2"]), "local", federation, seed=0).metrics
    assert metrics["scored_on"] == "test"
    assert metrics["misclustering"] is None


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nets_a:nothing", "'nets_a' has no attribute 'nothing'"),
        ("nets_a:number", "must be a class or function that returns a torch.nn.Module, not of "
         "type int"),
        ("nets_a:ready", "not of type Sequential"),
        ("nets_a:wrong", "must return a torch.nn.Module, not of type int"),
        ("nets_a:broken", "calling it failed: KeyError: 'no such layer'"),
        ("nets_b:network", "there is no module 'nets_b' in"),
        ("nets_c:network", "importing 'nets_c' failed: ZeroDivisionError: "),
        (":network", "importing '' failed: ValueError: "),
        ("mpl", "unknown model 'mpl': did you mean 'mlp'"),
    ],
)  # fmt: skip
def test_models_that_cannot_be_used_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, message: str
) -> None:
    (tmp_path / "nets_a.py").write_text(NETWORKS)
    (tmp_path / "nets_c.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "nets_a", raising=False)
    with pytest.raises(InputError, match=message):
        experiment_from_data(write_npz(tmp_path / "data.npz"), model)
