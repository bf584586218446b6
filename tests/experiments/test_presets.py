"""The experiments on real data, at reduced size, if the data is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from srfca.errors import InputError
from srfca.experiments import config, runner

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
def test_presets_have_the_numbers_of_the_paper(name: str) -> None:
    clients, _, steps, refine_steps, participation = PAPER[name]
    experiment = config.load(name)
    method = runner.make_method(experiment, "sr-fca")
    assert experiment.arguments("data")["num_clients"] == clients
    assert (method.local.steps, method.refine_steps) == (steps, refine_steps)
    assert method.participation == participation
    assert runner.make_method(experiment, "global").participation == participation


@pytest.mark.parametrize("name", [name for name in config.names() if config.read(name).needs])
def test_every_preset_runs_at_reduced_size(name: str, real_data: Callable[[str], Path]) -> None:
    experiment = config.load(name)
    assert experiment.needs is not None
    folder = real_data(experiment.needs)
    small = experiment.set(experiment.quick)
    federation = runner.make_federation(small, seed=0, folder=folder)
    assert len(federation.client_ids) == small.arguments("data")["num_clients"]
    metrics = runner.run_method(small, "sr-fca", federation, seed=0).metrics
    assert metrics["num_clusters"] >= 1
    assert 0 <= metrics["accuracy"] <= 1
    if name in PAPER and experiment.needs == "mnist":
        assert metrics["misclustering"] == 0
        assert metrics["num_clusters"] == int(experiment.clusters)


def test_clients_have_as_many_samples_as_in_the_paper(real_data: Callable[[str], Path]) -> None:
    for name, needs in (("rotated-mnist", "mnist"), ("rotated-cifar10", "cifar10")):
        experiment = config.load(name)
        dataset = experiment.component("data")
        clients = dataset(**experiment.arguments("data"), folder=real_data(needs))
        assert set(clients.train.sizes.tolist()) == {PAPER[name][1]}


def test_missing_data_say_what_is_missing_where_and_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        runner.make_federation(config.load("rotated-mnist"), seed=0, folder=tmp_path)
    message = str(raised.value)
    assert "train-images-idx3-ubyte" in message
    assert str(tmp_path) in message
    assert "srfca data get mnist" in message


FIELD = {
    # sizes of the true clusters
    "fashion-dirichlet-1": [60],
    "fashion-dirichlet-03": [60],
    "fashion-rotations": [20, 20, 20],
    "fashion-permutations": [20, 20, 20],
    "fashion-outliers": [58, 1, 1],
    "fashion-groups-outliers": [29, 29, 1, 1],
    "fashion-noise-20": [60],
    "fashion-noise-60": [60],
    "fedrc-fashion-mnist": [120, 90, 90],
}


@pytest.mark.parametrize("name", FIELD)
def test_federations_of_the_field(name: str, real_data: Callable[[str], Path]) -> None:
    experiment = config.load(name)
    assert experiment.needs is not None
    dataset, folder = experiment.component("data"), real_data(experiment.needs)
    clients = dataset(**experiment.arguments("data"), folder=folder, seed=1000)
    assert clients.truth.sizes.tolist() == FIELD[name]
    assert int(experiment.clusters) == len(FIELD[name])
    assert int(clients.train.sizes.sum()) == (60_000 if name.startswith("fedrc") else 6_000)
    assert int(clients.train.sizes.min()) >= 10
    assert int(clients.test.sizes.min()) >= 20
