"""The paper's experiments on real data, at reduced size, where the data are found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import torch

from srfca.errors import InputError
from srfca.experiments import config, runner
from srfca.federation.base import Tick, silent
from tests.test_cli import srfca

PAPER = {
    # clients, samples of each, steps, R, participation
    "synthetic": (100, 100, 280, 1, 1.0),
    "rotated-mnist": (100, 600, 250, 2, 1.0),
    "inverted-mnist": (100, 600, 280, 2, 1.0),
    "rotated-cifar10": (32, 3125, 2400, 2, 0.5),
    "label-cifar10": (32, None, 2400, 1, 0.5),
    "femnist": (50, None, 1000, 2, 1.0),
    "shakespeare": (50, None, 2400, 2, 1.0),
}


@pytest.mark.parametrize("name", PAPER)
def test_presets_have_the_papers_numbers(name: str) -> None:
    clients, _, steps, refine, participation = PAPER[name]
    experiment = config.load(name)
    method = runner.method(experiment, "sr-fca")
    assert experiment.arguments("data")["num_clients"] == clients
    assert (method.work.steps, method.refine_steps) == (steps, refine)
    assert method.participation == participation
    assert runner.method(experiment, "global").participation == participation


@pytest.mark.parametrize("name", [name for name in config.names() if config.read(name).needs])
def test_every_preset_runs_at_reduced_size(name: str, real_data: Callable[[str], Path]) -> None:
    experiment = config.load(name)
    assert experiment.needs is not None
    folder = real_data(experiment.needs)
    small = experiment.set(experiment.quick)
    clients = runner.federation(small, seed=0, folder=folder)
    assert len(clients.clients) == small.arguments("data")["num_clients"]
    row = runner.run(small, "sr-fca", clients, seed=0).row()
    assert row["num_clusters"] >= 1
    assert 0 <= row["accuracy"] <= 1
    if experiment.needs == "mnist":
        assert row["misclustering"] == 0
        assert row["num_clusters"] == int(experiment.clusters)


def test_samples_are_the_papers(real_data: Callable[[str], Path]) -> None:
    for name, needs in (("rotated-mnist", "mnist"), ("rotated-cifar10", "cifar10")):
        experiment = config.load(name)
        make = experiment.callable("data")
        made = make(**experiment.arguments("data"), folder=real_data(needs))
        assert set(made.train.sizes.tolist()) == {PAPER[name][1]}


def test_a_warm_start_is_what_fedavg_trained() -> None:
    settings = ["num_clients=8", "rotations=2", "steps=10"]
    plain = config.load("rotated-digits").set(settings)
    warm = plain.set(["warm_start=6"])
    start = runner.federation(warm, seed=3).initial(3)
    own = ["global.lr=0.01", "global.participation=0.5", "global.weighted=false"]
    same = runner.federation(warm.set(own), seed=3).initial(3)
    assert torch.equal(start, same), "these are for the method"
    clients = runner.federation(plain, seed=3)
    trained = runner.method(plain.set(["work.steps=6"]), "global").fit(clients, seed=3)
    assert torch.equal(start, trained.models[0])
    assert not torch.equal(start, clients.initial(3))


def test_a_warm_start_may_have_its_own_rate_and_is_not_fine_tuned() -> None:
    settings = ["num_clients=8", "rotations=2", "steps=10", "warm_start=6"]
    plain = config.load("rotated-digits").set(settings)
    slower = plain.set(["work.lr=0.01", "warm_lr=0.2", "personal_steps=5"])
    expected = runner.federation(plain.set(["work.lr=0.2"]), seed=3).initial(3)
    told: list[str] = []

    class Told:
        def stage(self, name: str, steps: int) -> AbstractContextManager[Tick]:
            told.append(name)
            return nullcontext(silent)

    start = runner.federation(slower, seed=3, monitor=Told()).initial(3)
    assert torch.equal(start, expected)
    assert told
    assert "PERSONALISE" not in told


def test_missing_data_says_what_where_and_how(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        runner.federation(config.load("rotated-mnist"), seed=0, folder=tmp_path)
    message = str(raised.value)
    assert "train-images-idx3-ubyte" in message
    assert str(tmp_path) in message
    assert "srfca data get mnist" in message
    done = srfca("run", "femnist", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert "femnist" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_data_commands(tmp_path: Path) -> None:
    done = srfca("data", "check", "--data-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("missing") >= 4
    done = srfca("data", "get", "mnits", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert "did you mean 'mnist'" in done.stderr
    done = srfca("run", "rotated-digits", "--quick", "--set", "steps=2", "--json")
    assert done.returncode == 0, done.stderr
