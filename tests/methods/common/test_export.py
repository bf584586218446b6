"""The models of a result as files: which files, what is in them, and what the index says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from srfca import FedAvg, InputError, LocalTraining, Result, Simulation
from srfca.models import mlp
from tests import examples


@pytest.fixture(scope="module")
def result() -> Result:
    federation = Simulation(examples.classification([20] * 4), mlp(6, 5, 3))
    found = FedAvg(local=LocalTraining(steps=3, local_steps=3)).fit(federation)
    return replace(
        found,
        models=torch.rand(2, found.models.shape[1]),
        labels=np.array([0, 1, 0, 1]),
        client_ids=("north", "south", "a/b", "a_b"),
    )


def test_every_cluster_has_a_file(result: Result, tmp_path: Path) -> None:
    files = result.export(tmp_path)
    names = ["cluster-0.safetensors", "cluster-1.safetensors", "models.json"]
    assert [path.name for path in files] == names
    for cluster in (0, 1):
        module = mlp(6, 5, 3)()
        module.load_state_dict(load_file(files[cluster]))
        x = torch.randn(4, 6)
        with torch.no_grad():
            torch.testing.assert_close(module(x), result.module(cluster=cluster)(x))
    index = json.loads(files[-1].read_text())
    assert index["models"][1] == {"file": names[1], "cluster": 1, "clients": ["south", "a_b"]}
    assert index["signature"]["input_shape"] == [6]


def test_clients_have_files_of_their_own(result: Result, tmp_path: Path) -> None:
    tuned = torch.rand(4, result.models.shape[1])
    final = replace(result, fine_tuned_models=tuned, fine_tuned_steps=torch.ones(4))
    files = final.export(tmp_path, "torch", clients=["a/b", "a_b", 0])
    names = ["client-a_b-2.pt", "client-a_b.pt", "client-north.pt", "models.json"]
    assert [path.name for path in files] == names
    state = torch.load(files[2], weights_only=True)
    assert torch.equal(state["1.weight"].flatten(), tuned[0][:30])
    both = final.export(tmp_path / "both", clusters=[1], clients=["north"])
    assert [path.name for path in both[:2]] == ["cluster-1.safetensors", "client-north.safetensors"]


def test_wrong_names_and_formats_are_refused(result: Result, tmp_path: Path) -> None:
    for message, arguments in (
        ("unknown client 'nort'", {"clients": ["nort"]}),
        ("there is no cluster 2", {"clusters": [2]}),
        ("unknown format 'pickle'", {"format": "pickle"}),
    ):
        with pytest.raises(InputError, match=message):
            result.export(tmp_path, **arguments)


def test_onnx_needs_to_know_the_inputs(result: Result, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="needs srfca[onnx]")
    assert result.architecture is not None
    unknown = replace(result, architecture=replace(result.architecture, signature=None))
    with pytest.raises(InputError, match="does not say what inputs its models take"):
        unknown.export(tmp_path, "onnx")
