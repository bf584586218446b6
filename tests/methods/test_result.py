"""Results: saved and loaded, read by people, scored, and used to assign newcomers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from srfca import SRFCA, FedAvg, InputError, Local, LocalTraining, Result, Simulation
from srfca.federation import Coordinates, Personal
from srfca.methods._common.result import models_of_clients
from srfca.methods._common.result_files import stored_digest
from srfca.models import linear, mlp
from tests import examples
from tests.methods.helpers import DropByNumber, StageSteps

LOCAL = LocalTraining(steps=12, local_steps=3, batch_size=10, lr=0.05)


@pytest.fixture(scope="module")
def federation() -> Simulation:
    return Simulation(examples.regression([20] * 9, clusters=3), linear(4))


@pytest.fixture(scope="module")
def result(federation: Simulation) -> Result:
    return SRFCA(local=LOCAL).fit(federation, seed=5)


def test_a_loaded_result_is_the_same(result: Result, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "a" / "b")
    loaded = Result.load(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["result.json", "tensors.safetensors"]
    assert len(stored_digest(folder)) == 64
    assert torch.equal(loaded.models, result.models)
    assert np.array_equal(loaded.labels, result.labels)
    assert np.array_equal(loaded.labels_, result.labels)
    assert loaded.loss_limits is not None
    assert result.loss_limits is not None
    for name, tensor in result.loss_limits.tensors().items():
        assert torch.equal(loaded.loss_limits.tensors()[name], tensor), name
    assert loaded.input_statistics is None
    assert loaded.parameters == result.parameters
    assert (loaded.method, loaded.seed, loaded.client_ids) == ("SR-FCA", 5, result.client_ids)
    for stage, original in zip(loaded.history, result.history, strict=True):
        assert (stage.name, stage.labels, stage.loss, stage.notes) == (
            original.name, original.labels, original.loss, original.notes,
        )  # fmt: skip
        assert stage.budget == original.budget
    assert np.array_equal(loaded.history[0].distances, result.history[0].distances)  # type: ignore[arg-type]
    kept, scores = loaded.history[0].scores, result.history[0].scores
    assert kept is not None
    assert scores is not None
    assert torch.equal(kept.loss, scores.loss)
    assert loaded.summary() == result.summary()


def test_personal_coordinates_are_saved(result: Result, tmp_path: Path) -> None:
    personal = Personal(Coordinates(((1, 3), (4, 5))), seed=7, purpose="fedrep")
    loaded = Result.load(replace(result, personal=personal).save(tmp_path))
    assert loaded.personal == personal


def test_distances_that_are_not_contiguous_are_saved(
    federation: Simulation, tmp_path: Path
) -> None:
    result = SRFCA(local=LOCAL, distance="one_sided_loss").fit(federation)
    loaded = Result.load(result.save(tmp_path))
    assert np.array_equal(loaded.history[0].distances, result.history[0].distances)  # type: ignore[arg-type]


def shifted_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(-1) - targets).square() - 100


def test_negative_losses_are_refused_only_where_their_logarithm_is_taken() -> None:
    data = examples.regression([20] * 9, clusters=3)
    negative = Simulation(data, linear(4), loss=shifted_squared_error, negative_losses=True)
    usual = Simulation(data, linear(4))
    local = LocalTraining(steps=30, local_steps=3, batch_size=10, lr=0.05)
    method = SRFCA(local=local, distance="l2", threshold=2.5)
    for federation in (negative, usual):
        outcome = method.fit(federation)
        assert outcome.partition == data.truth
        assert outcome.assign(federation).labels.tolist() == outcome.labels.tolist()
    for options, name in (
        (SRFCA(local=LOCAL), "threshold='auto'"),
        (replace(method, merge_threshold="auto"), "merge_threshold='auto'"),
        (replace(method, distance="cross_loss"), "distance='cross_loss'"),
    ):
        with pytest.raises(InputError, match=f"^{name} needs losses that are not negative.*add a"):
            options.fit(negative)
    undeclared = Simulation(data, linear(4), loss=shifted_squared_error)
    with pytest.raises(InputError, match=r"those of 9 of 9 clients are.*negative_losses=True"):
        method.fit(undeclared)


def test_the_json_is_plain(result: Result, tmp_path: Path) -> None:
    content = json.loads((result.save(tmp_path) / "result.json").read_text())
    assert content["labels"] == result.labels.tolist()
    assert content["history"][0]["notes"]["reason"].startswith("at distance")
    assert content["parameters"]["local"]["lr"] == 0.05


def test_repr_and_summary_are_readable(result: Result) -> None:
    assert repr(result) == "Result(SR-FCA, 9 clients, 3 models, seed 5)"
    text = result.summary()
    assert text.startswith("SR-FCA, seed 5: 9 clients: 3 clusters of 3, 3, 3 clients")
    assert "MERGE 1" in text


def test_damaged_files_are_refused(result: Result, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no result: there is no result\.json in it"):
        Result.load(tmp_path)
    result.save(tmp_path)
    tensors = tmp_path / "tensors.safetensors"
    content = tensors.read_bytes()
    tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="damaged, or of another run"):
        Result.load(tmp_path)
    tensors.write_bytes(content)
    text = (tmp_path / "result.json").read_text()
    assert '"format": 5' in text
    (tmp_path / "result.json").write_text(text.replace('"format": 5', '"format": 99'))
    with pytest.raises(InputError, match="format 99"):
        Result.load(tmp_path)
    for damaged in (text[:50], "[]", text.replace('"seed"', '"need"')):
        (tmp_path / "result.json").write_text(damaged)
        with pytest.raises(InputError, match=r"result\.json is damaged"):
            Result.load(tmp_path)


def test_newcomers_with_another_model_are_refused(result: Result) -> None:
    newcomers = Simulation(examples.regression([20] * 4), mlp(4, 3, 1))
    with pytest.raises(InputError, match="models of length 5, but the clients' have 19"):
        result.assign(newcomers)


def test_newcomers_that_do_not_reply_have_no_cluster(
    result: Result, federation: Simulation
) -> None:
    assignment = result.assign(DropByNumber(federation, {0: [4]}), [2, 4, 5])
    assert assignment.labels.tolist() == [result.labels[2], -1, result.labels[5]]
    assert assignment.losses[1].isnan().all()
    assert assignment.losses[[0, 2]].isfinite().all()


def test_an_unwritable_folder_is_named(result: Result, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write to .*file"):
        result.save(tmp_path / "file" / "below")


def test_local_and_fedavg_have_models_but_no_clusters(federation: Simulation) -> None:
    for method, num_models in ((Local(local=LOCAL), 9), (FedAvg(local=LOCAL), 1)):
        outcome = method.fit(federation, seed=0)
        assert len(outcome.models) == num_models
        assert outcome.client_models.shape == (9, 5)
        assert "cluster" not in outcome.summary().splitlines()[0]
        with pytest.raises(InputError, match="no clusters to assign"):
            outcome.assign(federation)
    with pytest.raises(InputError, match="participation"):
        FedAvg(participation=0.0)


def test_scores_of_models_that_were_not_fine_tuned_are_refused(
    result: Result, federation: Simulation
) -> None:
    with pytest.raises(InputError, match="no fine-tuned models: set fine_tune_steps"):
        result.scores(federation, fine_tuned=True)


def test_progress_is_what_was_announced(federation: Simulation) -> None:
    for options in (
        SRFCA(local=LOCAL, final_steps=4, participation=0.5, refine_steps=1, resample=True),
        SRFCA(local=LOCAL, exchange="gradients", participation=0.5, refine_steps=1),
    ):
        monitor = StageSteps()
        options.fit(federation, callbacks=monitor)
        assert {"ONE_SHOT", "TRIMMED_MEAN_GD 1"} <= set(monitor.stages)
        for name, (announced, done) in monitor.stages.items():
            assert announced == done, name


def test_a_client_in_no_cluster_has_a_model_of_nan() -> None:
    rows = models_of_clients(torch.eye(2), np.array([1, -1, 0]))
    assert rows[[0, 2]].tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert rows[1].isnan().all()
