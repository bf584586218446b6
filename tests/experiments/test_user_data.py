"""Experiments on a user's data."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from srfca import ClientData
from srfca.errors import InputError
from srfca.experiments import runner
from srfca.experiments.user_data import experiment_from_data, model_sizes, num_outputs
from tests.experiments.small import NETWORKS, RNG, SPLIT, X, Y, write_npz


@dataclass(frozen=True)
class ImageModel:
    classes: int = 9
    channels: int = 3
    size: int = 32
    hidden: int = 5


@pytest.mark.parametrize(
    ("x", "sizes"),
    [
        (np.zeros((4, 8, 8)), {"channels": 1, "size": 8, "classes": 2}),
        (np.zeros((4, 2, 6, 6)), {"channels": 2, "size": 6, "classes": 2}),
    ],
)
def test_sizes_of_a_model_follow_from_the_data(x: NDArray[Any], sizes: dict[str, int]) -> None:
    assert model_sizes(ImageModel, "cnn", ClientData.from_arrays([(x, [0, 1, 0, 1])])) == sizes


def test_the_number_of_outputs_follows_from_the_targets() -> None:
    def outputs(y: Any, test: Any = None) -> int:
        test_data = None if test is None else [(X, test)]
        return num_outputs(ClientData.from_arrays([(X, y)], test_data))

    assert outputs(Y) == 2
    assert outputs(Y, np.full(12, 4)) == 5, "a class that only test data have counts"
    assert outputs(0 * Y) == 2, "a single output would be scored as yes or no"
    assert outputs(X[:, 0]) == 1
    assert outputs(X) == 3
    for wrong in (Y - 1, Y + 30):
        with pytest.raises(InputError, match="classes are numbered from 0"):
            outputs(wrong)
    with pytest.raises(InputError, match="cnn takes square images"):
        model_sizes(ImageModel, "cnn", ClientData.from_arrays([(X, Y)]))


def test_integer_inputs_become_floating_point(tmp_path: Path) -> None:
    x = RNG.integers(0, 256, (12, 4, 4), dtype=np.uint8)
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
