"""Clients on a Ray cluster of two nodes give the answers of a simulation."""

from __future__ import annotations

from collections.abc import Callable
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
from srfca.federation.middleware.validation import Validating
from srfca.federation.requests import Losses, Request, Round, Scores, Shares, Train
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
from tests.ray.helpers import DigitsShard, End, Fragile, close, digits, on_ray, small_model

pytestmark = pytest.mark.slow

LOCAL = LocalTraining(steps=12, local_steps=4, batch_size=8, lr=0.3)


def test_it_passes_all_checks(cluster: LocalCluster) -> None:
    made: list[RayFederation] = []

    def make(data: ClientData, model: Callable[[], nn.Module]) -> RayFederation:
        for federation in made:
            federation.close()
        made.append(on_ray(data, model))
        return made[-1]

    check_federation(make)
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


def test_methods_give_the_labels_and_models_of_a_simulation(cluster: LocalCluster) -> None:
    data = digits()
    simulation = Simulation(data, small_model)
    with on_ray(data) as federation:
        assert federation.fingerprint() == simulation.fingerprint()
        for name, method in METHODS.items():
            expected = method.fit(simulation, seed=1)
            result = method.fit(federation, seed=1)
            assert result.labels.tolist() == expected.labels.tolist(), name
            assert close(result.models, expected.models), name
            assert result.budget == expected.budget, name
            for split in ("validation", "test"):
                scores = result.scores(federation, split)
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


def test_rounds_of_every_kind_are_those_of_a_simulation(cluster: LocalCluster) -> None:
    data = digits()
    simulation = Simulation(data, small_model)
    models = torch.stack([simulation.initial_model(seed) for seed in range(4)])
    with on_ray(data) as federation:
        for request in rounds(models.shape[1], models, len(data)):
            replies, expected = federation.ask(request), ask(simulation, request)
            assert replies.clients.tolist() == expected.clients.tolist()
            assert close(replies.values, expected.values), request
        many = models.repeat(20, 1)  # so large that all machines get them once
        for losses in (Losses(np.array([7, 0, 11]), many), Shares(np.arange(12), many)):
            assert close(federation.ask(losses).values, simulation.ask(losses).values)


def test_a_round_of_means_moves_as_much_for_many_clients_as_for_few(cluster: LocalCluster) -> None:
    moved = []
    for num_clients in (10, 80):
        with on_ray(digits(num_clients)) as federation:
            models = torch.stack([federation.initial_model(seed) for seed in range(2)])
            labels = np.arange(num_clients) % 2
            for number in range(3):
                key = Key(0, "traffic", number)
                request = Round(np.arange(num_clients), models, labels, LOCAL, key)
                traffic = federation.ask(request).traffic
            moved.append((traffic.messages, traffic.bytes_down, traffic.bytes_up))
    assert moved[0] == moved[1]


def test_diverging_clients_are_refused_as_in_a_simulation(cluster: LocalCluster) -> None:
    data = digits(6)
    x = data.train.x.clone()
    x[: int(data.train.sizes[0])] *= 1e30
    extreme = ClientData(data.client_ids, type(data.train)(x, data.train.y, data.train.sizes))
    simulation = Simulation(extreme, small_model)
    request = Round(
        np.arange(6), simulation.initial_model(0).unsqueeze(0), np.zeros(6, int), LOCAL, Key(0, "x")
    )
    with on_ray(extreme) as federation:
        for rule in (Mean(), Median()):
            with pytest.warns(UserWarning, match="refused a reply of client"):
                expected = ask(Validating(simulation), replace(request, aggregation=rule))
            with pytest.warns(UserWarning, match="refused a reply of client"):
                replies = ask(Validating(federation), replace(request, aggregation=rule))
            assert replies.missing == expected.missing
            assert close(replies.values, expected.values)
        alone = request.select(np.array([0]))
        assert ask(Validating(federation), alone).values.isnan().any()


def test_shards_can_be_made_on_the_workers(cluster: LocalCluster) -> None:
    simulation = Simulation(digits(), small_model)
    makers = [DigitsShard(0, 3), DigitsShard(3, 8), DigitsShard(8, 12)]
    with on_ray(makers) as federation:
        assert list(federation.client_ids) == list(simulation.client_ids)
        assert federation.sizes.tolist() == simulation.sizes.tolist()
        with pytest.raises(InputError, match="made on the workers"):
            _ = federation.data
        assert federation.constant_loss == simulation.constant_loss
        w0 = simulation.initial_model(0)
        request = Round(np.arange(12), w0.unsqueeze(0), np.zeros(12, int), LOCAL, Key(0, "x"))
        assert close(federation.ask(request).values, ask(simulation, request).values)


def test_workers_read_files(cluster: LocalCluster, tmp_path: Path) -> None:
    data = digits(6)
    for number, (start, stop) in enumerate([(0, 2), (2, 6)]):
        part = cut(data, start, stop)
        owner = np.repeat(part.client_ids, part.train.sizes.numpy())
        np.savez(tmp_path / f"{number}.npz", x=part.train.x, y=part.train.y, client=owner)
    simulation = Simulation(replace(data, test=None, truth=None), small_model)
    with on_ray(files_in(tmp_path)) as federation:
        assert list(federation.client_ids) == list(simulation.client_ids)
        request = Losses(np.arange(6), simulation.initial_model(0).unsqueeze(0))
        assert close(federation.ask(request).values, simulation.ask(request).values)
    with pytest.raises(InputError, match="standardize needs all rows"):
        files_in(tmp_path, standardize=True)


@pytest.mark.parametrize("ends", ["process", "node"])
def test_a_worker_that_is_lost_in_a_round_changes_nothing(
    cluster: LocalCluster, tmp_path: Path, ends: End
) -> None:
    armed = tmp_path / "armed"
    loss, data = Fragile(str(armed), ends), digits(6)
    simulation = Simulation(data, small_model, loss=loss)
    w0 = simulation.initial_model(0)
    kept = replace(LOCAL, lr=0.1, momentum=0.9, keep_state=True)
    kinds = ((LOCAL, Mean()), (LOCAL, Median()), (kept, Mean()), (kept, Median()))
    requests: list[Request[Tensor]] = [
        *(
            Round(np.arange(6), w0.expand(2, -1), np.arange(6) % 2, local, Key(1, "round", n), rule)
            for local, rule in kinds
            for n in range(2)
        ),
        *(
            Train(
                np.arange(6), w0.expand(6, -1), LOCAL, Key(1, "head", n),
                personal=Coordinates(((0, 8),)),
            )
            for n in range(2)
        ),
        Losses(np.arange(6), w0.expand(2, -1)),
    ]  # fmt: skip
    expected = [ask(simulation, request).values for request in requests]
    chosen = (1, 3, 7, 9) if ends == "process" else (2, 7)
    with on_ray(data, loss=loss, patience=10.0) as federation:
        for number, request in enumerate(requests):
            if number in chosen:
                cluster.require_nodes(2)
                armed.touch()
            values = federation.ask(request).values
            assert close(values, expected[number]), number
            assert not armed.exists()
        assert federation.num_losses >= len(chosen)


def test_workers_that_are_lost_again_and_again_are_an_error(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    armed = tmp_path / "armed"
    loss = Fragile(str(armed), "process")
    with on_ray(digits(4), loss=loss, retries=0) as federation:
        w0 = federation.initial_model(0)
        armed.touch()
        with pytest.raises(InputError, match="workers were lost 1 times during one request"):
            federation.ask(Losses(np.arange(4), w0.unsqueeze(0)))


def test_errors_of_workers_are_raised_here(cluster: LocalCluster) -> None:
    with pytest.raises(InputError, match="the cluster has no room for 3 workers of 1 CPUs"):
        on_ray(digits(), actors=3)
    with pytest.raises(RuntimeError, match="no such data"):
        on_ray([missing_data])
    with pytest.raises(InputError, match="two shards have a client"):
        on_ray([DigitsShard(0, 3), DigitsShard(2, 4)])
    with on_ray(digits(4)) as federation, pytest.raises(InputError, match="no nothing data"):
        federation.ask(Scores(np.arange(4), federation.initial_model(0).expand(4, -1), "nothing"))  # type: ignore[arg-type]


def missing_data() -> ClientData:
    raise OSError("no such data")
