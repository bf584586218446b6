from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from srfca import SRFCA, Global, Local, Result, Simulation, Work
from srfca.errors import InputError
from srfca.files import replace_file
from srfca.models import linear, mlp
from tests import examples

WORK = Work(steps=12, local_steps=3, batch_size=10, lr=0.05)


@pytest.fixture(scope="module")
def federation() -> Simulation:
    return Simulation(examples.regression([20] * 9, clusters=3), linear(4))


@pytest.fixture(scope="module")
def result(federation: Simulation) -> Result:
    return SRFCA(work=WORK).fit(federation, seed=5)


def test_saved_and_loaded_it_is_the_same(result: Result, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "a" / "b")
    again = Result.load(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["result.json", "tensors.safetensors"]
    assert torch.equal(again.models, result.models)
    assert np.array_equal(again.labels, result.labels)
    assert again.reach is not None
    assert result.reach is not None
    assert torch.equal(again.reach, result.reach)
    assert again.parameters == result.parameters
    assert (again.method, again.seed, again.clients) == ("SR-FCA", 5, result.clients)
    for one, other in zip(again.history, result.history, strict=True):
        assert (one.name, one.labels, one.loss, one.notes) == (
            other.name, other.labels, other.loss, other.notes,
        )  # fmt: skip
    assert np.array_equal(again.history[0].distances, result.history[0].distances)  # type: ignore[arg-type]
    assert again.summary() == result.summary()


def test_distances_that_lie_askew_in_memory_are_saved(
    federation: Simulation, tmp_path: Path
) -> None:
    found = SRFCA(work=WORK, distance="one_sided_loss").fit(federation)
    again = Result.load(found.save(tmp_path))
    assert np.array_equal(again.history[0].distances, found.history[0].distances)  # type: ignore[arg-type]


def negative(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(-1) - targets).square() - 100


def test_losses_may_be_negative_where_nothing_takes_their_logarithm() -> None:
    data = examples.regression([20] * 9, clusters=3)
    below = Simulation(data, linear(4), loss=negative)
    usual = Simulation(data, linear(4))
    work = Work(steps=30, local_steps=3, batch_size=10, lr=0.05)
    method = SRFCA(work=work, distance="l2", threshold=2.5)
    for federation in (below, usual):
        found = method.fit(federation)
        assert found.partition == data.truth
        assert found.assign(federation).labels.tolist() == found.labels.tolist()
    for asks, why in (
        (SRFCA(work=WORK), "distances must not be negative.*add a constant"),
        (SRFCA(work=WORK, distance="l2"), "losses must not be negative.*add a constant"),
    ):
        with pytest.raises(InputError, match=why):
            asks.fit(below)


def test_the_json_is_plain(result: Result, tmp_path: Path) -> None:
    content = json.loads((result.save(tmp_path) / "result.json").read_text())
    assert content["labels"] == result.labels.tolist()
    assert content["history"][0]["notes"]["reason"].startswith("at distance")
    assert content["parameters"]["work"]["lr"] == 0.05


def test_it_reads_well(result: Result) -> None:
    assert repr(result) == "Result(SR-FCA, 9 clients, 3 models, seed 5)"
    text = result.summary()
    assert text.startswith("SR-FCA, seed 5: 9 clients in 3 clusters of 3, 3, 3")
    assert "MERGE 1" in text


def test_damage_is_refused(result: Result, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no result"):
        Result.load(tmp_path)
    result.save(tmp_path)
    tensors = tmp_path / "tensors.safetensors"
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InputError, match="damaged, or of another run"):
        Result.load(tmp_path)
    tensors.write_bytes(whole)
    text = (tmp_path / "result.json").read_text()
    (tmp_path / "result.json").write_text(text.replace('"format": 1', '"format": 99'))
    with pytest.raises(InputError, match="format 99"):
        Result.load(tmp_path)
    for damaged in (text[:50], "[]", text.replace('"seed"', '"need"')):
        (tmp_path / "result.json").write_text(damaged)
        with pytest.raises(InputError, match=r"result\.json is damaged"):
            Result.load(tmp_path)


def test_clients_of_another_model_are_refused(result: Result) -> None:
    others = Simulation(examples.regression([20] * 4), mlp(4, 3, 1))
    with pytest.raises(InputError, match="models of length 5, but the clients' have 19"):
        result.assign(others)


def test_an_unwritable_folder_is_named(result: Result, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write to .*file"):
        result.save(tmp_path / "file" / "below")


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    replace_file(path, b"old")

    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_local_and_global_have_models_but_no_clusters(federation: Simulation) -> None:
    for method, models in ((Local(work=WORK), 9), (Global(work=WORK), 1)):
        found = method.fit(federation, seed=0)
        assert len(found.models) == models
        assert found.client_models.shape == (9, 5)
        assert "cluster" not in found.summary().splitlines()[0]
        with pytest.raises(InputError, match="no clusters to assign"):
            found.assign(federation)
    with pytest.raises(InputError, match="participation"):
        Global(participation=0.0)


def test_the_caller_may_watch(federation: Simulation) -> None:
    from collections.abc import Iterator
    from contextlib import contextmanager

    from srfca.federation.base import Tick

    class Counting:
        def __init__(self) -> None:
            self.seen: dict[str, list[int]] = {}

        @contextmanager
        def stage(self, name: str, steps: int) -> Iterator[Tick]:
            done: list[int] = []
            yield done.append
            self.seen[name] = [steps, sum(done)]

    for options in (
        SRFCA(work=WORK, final_steps=4, participation=0.5, refine_steps=1, resample=True),
        SRFCA(work=WORK, aggregate="gradients", participation=0.5, refine_steps=1),
    ):
        watch = Counting()
        options.fit(federation, monitor=watch)
        assert {"ONE_SHOT", "TRIMMED_MEAN_GD 1"} <= set(watch.seen)
        for name, (announced, done) in watch.seen.items():
            assert announced == done, name
