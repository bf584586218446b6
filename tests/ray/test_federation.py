"""Clients on a Ray cluster of two nodes give the answers of a simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("ray")

from srfca import SRFCA, ClientData, FedAvg, InputError, LocalTraining, Method, Simulation
from srfca.aggregation.rules import (
    Aggregation,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    TrimmedMean,
)
from srfca.federation.coordinates import Coordinates
from srfca.federation.requests import Losses, Round, Scores, Shares
from srfca.federation.rounds import ask
from srfca.methods.cfl import CFL
from srfca.methods.fedem import FedEM
from srfca.methods.fedrep import FedRep
from srfca.methods.ifca import IFCA
from srfca.random import Key
from srfca.ray import RayFederation, files_in
from srfca.ray.shards import cut
from srfca.testing import check_federation
from tests.ray.cluster import LocalCluster
from tests.ray.helpers import close, digits, on_ray, small_model

pytestmark = pytest.mark.slow

LOCAL = LocalTraining(steps=12, local_steps=4, batch_size=8, lr=0.3)


@pytest.fixture(scope="module")
def shared(started_cluster: LocalCluster) -> Iterator[RayFederation]:
    """The digits on two workers, one CPU each: starting workers takes seconds."""
    started_cluster.require_nodes(2)
    with on_ray(digits()) as federation:
        yield federation


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    """The same clients here."""
    return Simulation(digits(), small_model)


def test_it_passes_all_checks(cluster: LocalCluster) -> None:
    made: list[RayFederation] = []

    def make(data: ClientData, model: Callable[[], nn.Module]) -> RayFederation:
        for federation in made:
            federation.close()
        made.append(on_ray(data, model))
        return made[-1]

    check_federation(make, dtypes=[torch.float64])
    made[-1].close()


METHODS: dict[str, Method] = {
    "sr-fca": SRFCA(local=LOCAL, refine_steps=1),
    "sr-fca, a threshold": SRFCA(local=LOCAL, threshold=2.0, distance="l2", refine_steps=1),
    "ifca": IFCA(k=2, local=LOCAL, participation=0.5),
    "ifca, gradients": IFCA(k=2, local=LOCAL, exchange="gradients", shared=1),
    "cfl": CFL(local=LOCAL, warm_up=1),
    "fedem": FedEM(k=2, local=LOCAL),
    "fedavg": FedAvg(local=LOCAL),
    "fedavg, momentum": FedAvg(local=replace(LOCAL, lr=0.1, momentum=0.9, keep_state=True)),
    "fedrep": FedRep(local=LOCAL),
}


def test_methods_give_the_labels_and_models_of_a_simulation(
    shared: RayFederation, simulation: Simulation
) -> None:
    assert shared.fingerprint() == simulation.fingerprint()
    for name, method in METHODS.items():
        expected, result = method.fit(simulation, seed=1), method.fit(shared, seed=1)
        assert result.labels.tolist() == expected.labels.tolist(), name
        assert close(result.models, expected.models), name
        assert result.budget == expected.budget, name
        for split in ("validation", "test"):
            scores = result.scores(shared, split)
            assert close(scores.loss, expected.scores(simulation, split).loss), name


RULES: list[Aggregation] = [
    Mean(), Mean(weighted=False), TrimmedMean(0.2, at_least=1), Median(), GeometricMedian(),
    Krum(0.2),
]  # fmt: skip


def rounds(length: int, models: Tensor, m: int) -> list[Round]:
    """Rounds of every kind."""
    clients, labels = np.arange(m)[::-1].copy(), np.arange(m) % 3
    key, head = Key(2, "rounds"), Coordinates(((length - 10, length),))
    every = [
        Round(clients, models, labels, LOCAL, key, rule, shared=shared, max_change=limit)
        for rule in RULES
        for shared, limit in ((None, None), (head, 1.0))
    ]
    sizes = torch.arange(1, m + 1)
    return [
        *every,
        Round(clients, models, labels, LOCAL, key, server_lr=0.1),
        Round(clients[:4], models, 0 * labels[:4], LOCAL, key, sizes=sizes[:4]),
        Round(clients[:0], models, labels[:0], LOCAL, key),
    ]


def test_rounds_of_every_kind_are_those_of_a_simulation(
    shared: RayFederation, simulation: Simulation
) -> None:
    models = torch.stack([simulation.initial_model(seed) for seed in range(4)])
    for request in rounds(models.shape[1], models, len(shared.client_ids)):
        replies, expected = shared.ask(request), ask(simulation, request)
        assert replies.clients.tolist() == expected.clients.tolist()
        assert close(replies.values, expected.values), request
    many = models.repeat(20, 1)  # so large that all machines get them once
    for losses in (Losses(np.array([7, 0, 11]), many), Shares(np.arange(12), many)):
        assert close(shared.ask(losses).values, simulation.ask(losses).values)


def test_a_round_of_means_moves_as_much_for_many_clients_as_for_few(shared: RayFederation) -> None:
    with on_ray(digits(80)) as larger:
        moved = []
        for federation in (shared, larger):
            models = torch.stack([federation.initial_model(seed) for seed in range(2)])
            clients = np.arange(len(federation.client_ids))
            for number in range(3):  # the participants are sent in the first round
                request = Round(clients, models, clients % 2, LOCAL, Key(0, "traffic", number))
                traffic = federation.ask(request).traffic
            moved.append((traffic.messages, traffic.bytes_down, traffic.bytes_up))
    assert moved[0] == moved[1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ray.data itself
def test_workers_read_files_and_datasets(cluster: LocalCluster, tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    datasets = pytest.importorskip("ray.data")
    data = digits(6)
    (tmp_path / "npz").mkdir()
    (tmp_path / "parquet").mkdir()
    for number, (start, stop) in enumerate([(0, 2), (2, 6)]):
        part = cut(data, start, stop)
        owner = np.repeat(part.client_ids, part.train.sizes.numpy())
        np.savez(tmp_path / f"npz/{number}.npz", x=part.train.x, y=part.train.y, client=owner)
        rows = pa.table(
            {"x": part.train.x.flatten(1).tolist(), "y": part.train.y.numpy(), "client": owner}
        )
        parquet.write_table(rows, tmp_path / f"parquet/{number}.parquet")
    simulation = Simulation(replace(data, test=None, truth=None), small_model)
    request = Losses(np.arange(6), simulation.initial_model(0).unsqueeze(0))
    expected = simulation.ask(request).values
    frame = datasets.read_parquet(str(tmp_path / "parquet")).repartition(5)  # cuts clients apart
    for source in (files_in(tmp_path / "npz"), tmp_path / "parquet", frame):
        with on_ray(source) as federation:
            assert list(federation.client_ids) == list(simulation.client_ids)
            assert close(federation.ask(request).values, expected)
    with pytest.raises(InputError, match="standardize needs all rows"):
        files_in(tmp_path / "npz", standardize=True)


def test_errors_of_workers_are_raised_here(shared: RayFederation) -> None:
    with pytest.raises(InputError, match="the cluster has no room for 9 workers of 1 CPUs"):
        on_ray(digits(), actors=9)
    with pytest.raises(RuntimeError, match="no such data"):
        on_ray([missing_data])
    with pytest.raises(InputError, match="no nothing data"):
        shared.ask(Scores(np.arange(4), shared.initial_model(0).expand(4, -1), "nothing"))  # type: ignore[arg-type]


def missing_data() -> ClientData:
    raise OSError("no such data")
