"""Federations on a stand-in for Ray: quick tests of all that is not Ray's."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("ray")

import ray

from srfca import SRFCA, ClientData, FedAvg, InputError, LocalTraining, Simulation, models
from srfca.aggregation.rules import Aggregation, Krum, Mean, Median, TrimmedMean
from srfca.experiments import config, runner, saved
from srfca.experiments.answer import analyze_run
from srfca.federation.algorithms.meta import MetaDescent
from srfca.federation.coordinates import Coordinates
from srfca.federation.middleware.validation import Validating
from srfca.federation.requests import (
    BalancedLosses,
    Collect,
    Losses,
    Personal,
    Request,
    Round,
    Scores,
    Train,
)
from srfca.federation.rounds import ask
from srfca.methods.ifca import IFCA
from srfca.random import Key
from srfca.ray import RayFederation, connect, pool, splitting
from srfca.ray.cluster import Node, find_room
from srfca.ray.shards import cut
from srfca.testing import check_federation
from tests.ray.helpers import DigitsShard, close, digits, on_ray, small_model
from tests.ray.in_process import InProcess, Reference

LOCAL = LocalTraining(steps=12, local_steps=4, batch_size=8, lr=0.3)
HEAD = Coordinates(((602, 610),))
_EVERY = 23
"""One in this many calls is lost: fewer than the rows of a round need to be exchanged."""


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return Simulation(digits(), small_model)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> InProcess:
    """A stand-in that loses no worker."""
    stand_in = InProcess()
    stand_in.install(monkeypatch)
    return stand_in


def test_it_passes_all_checks(in_process: InProcess) -> None:
    check_federation(on_ray, dtypes=[torch.float64])


def test_methods_find_what_they_find_in_a_simulation(
    in_process: InProcess, simulation: Simulation
) -> None:
    with on_ray(digits()) as federation:
        assert federation.fingerprint() == simulation.fingerprint()
        assert federation.architecture.signature == simulation.architecture.signature
        assert federation.constant_loss == pytest.approx(simulation.constant_loss)
        assert federation.truth == simulation.data.truth
        sr_fca = SRFCA(local=LOCAL, refine_steps=1)
        for method in (sr_fca, IFCA(k=2, local=LOCAL, shared=1), FedAvg(local=LOCAL)):
            result, expected = method.fit(federation, seed=1), method.fit(simulation, seed=1)
            assert result.labels.tolist() == expected.labels.tolist()
            assert close(result.models, expected.models)
            assert result.budget == expected.budget


def requests_of_every_kind(simulation: Simulation) -> list[Request[Any]]:
    """Requests that depend on those before them, too."""
    clients, labels = np.arange(12), np.arange(12) % 3
    models = torch.stack([simulation.initial_model(seed) for seed in range(4)])
    kept = replace(LOCAL, lr=0.1, momentum=0.9, keep_state=True)
    sparse = replace(LOCAL, compress=0.1)
    rules: list[tuple[Aggregation, LocalTraining, Coordinates | None, float | None]] = [
        (Mean(), LOCAL, None, None), (Mean(), LOCAL, HEAD, 1.0), (Median(), kept, HEAD, None),
        (TrimmedMean(0.2), LOCAL, None, 1.0), (Krum(0.2), LOCAL, HEAD, None),
        (Mean(weighted=False), kept, HEAD, None), (Mean(), sparse, None, None),
    ]  # fmt: skip
    every: list[Request[Any]] = [
        Round(
            clients, models, labels, local, Key(1, f"round {number}", round), rule,
            shared=shared, max_change=limit,
        )
        for number, (rule, local, shared, limit) in enumerate(rules)
        for round in range(2)
    ]  # fmt: skip
    starts = models[:1].expand(12, -1)
    personal = Personal(HEAD, 1, "head")
    every += [
        Train(clients, starts, LOCAL, Key(1, "head", round), personal=HEAD) for round in range(2)
    ]
    many = models.repeat(20, 1)  # so large that all machines get them once
    return [
        *every, Scores(clients, starts, "train", personal), Collect(clients, personal),
        Losses(clients[::-1].copy(), many),
    ]  # fmt: skip


def answers(federation: Any, requests: Sequence[Request[Any]]) -> list[Any]:
    replies = [ask(federation, request).values for request in requests]
    return [values.loss if hasattr(values, "loss") else values for values in replies]


def test_a_worker_may_be_lost_at_any_call(
    monkeypatch: pytest.MonkeyPatch, simulation: Simulation
) -> None:
    requests = requests_of_every_kind(simulation)
    expected = answers(simulation, requests)
    stand_in = InProcess()
    stand_in.install(monkeypatch)
    with on_ray(digits()) as federation:
        assert all(map(close, answers(federation, requests), expected))
    num_calls = stand_in.calls
    for first in range(0, _EVERY, 2):
        stand_in = InProcess(lost=range(first, num_calls, _EVERY))
        stand_in.install(monkeypatch)
        with on_ray(digits()) as federation:
            assert all(map(close, answers(federation, requests), expected)), first
            assert federation.num_losses > 0
        assert not any(actor.lives for actor in stand_in.actors)


def test_others_take_over_where_no_new_worker_starts(
    monkeypatch: pytest.MonkeyPatch, simulation: Simulation
) -> None:
    stand_in = InProcess()
    stand_in.install(monkeypatch)
    with on_ray(digits()) as federation:
        stand_in.starts, stand_in.lost = False, [stand_in.calls]
        request = Losses(np.arange(12), simulation.initial_model(0).unsqueeze(0))
        assert close(federation.ask(request).values, simulation.ask(request).values)
        assert "2 shards on 1 workers" in repr(federation)
        stand_in.lost = [stand_in.calls]
        with pytest.raises(InputError, match="all workers of the Ray cluster are lost"):
            federation.ask(request)


def test_workers_that_are_lost_again_and_again_are_an_error(
    monkeypatch: pytest.MonkeyPatch, simulation: Simulation
) -> None:
    stand_in = InProcess()
    stand_in.install(monkeypatch)
    with on_ray(digits(), retries=2) as federation:
        stand_in.lost = range(1000)
        w0 = simulation.initial_model(0).unsqueeze(0)
        with pytest.raises(InputError, match="lost 3 times during one request"):
            federation.ask(Losses(np.arange(12), w0))
        request = Round(np.arange(12), w0, np.zeros(12, int), LOCAL, Key(0, "x"), Median())
        with pytest.raises(InputError, match="lost 3 times during one request"):
            federation.ask(request)


def test_long_histories_are_replaced_by_what_clients_keep(
    monkeypatch: pytest.MonkeyPatch, simulation: Simulation
) -> None:
    monkeypatch.setattr(pool, "_MAX_HISTORY_BYTES", 0)
    stand_in = InProcess()
    stand_in.install(monkeypatch)
    local = replace(LOCAL, lr=0.1, momentum=0.9, keep_state=True, compress=0.1)
    starts = simulation.initial_model(0).expand(12, -1)
    requests = [
        Train(np.arange(12), starts, local, Key(1, "long", n), personal=HEAD) for n in range(3)
    ]
    expected = answers(simulation, requests)
    with on_ray(digits()) as federation:
        values = answers(federation, requests[:2])
        stand_in.lost = [stand_in.calls + 3]  # after what is kept has been fetched
        values += answers(federation, requests[2:])
        assert federation.num_losses == 1
    assert all(map(close, values, expected))


def test_few_diverging_clients_are_refused_and_many_are_not(in_process: InProcess) -> None:
    data = digits(6)
    x = data.train.x.clone()
    x[: int(data.train.sizes[0])] *= 1e30
    extreme = ClientData(data.client_ids, type(data.train)(x, data.train.y, data.train.sizes))
    simulation = Simulation(extreme, small_model)
    w0 = simulation.initial_model(0).unsqueeze(0)
    with on_ray(extreme) as federation:
        for rule in (Mean(), Median()):
            request = Round(np.arange(6), w0, np.zeros(6, int), LOCAL, Key(0, "x"), rule)
            with pytest.warns(UserWarning, match="refused a reply of client"):
                expected = ask(Validating(simulation), request)
            with pytest.warns(UserWarning, match="refused a reply of client"):
                replies = ask(Validating(federation), request)
            assert replies.missing == expected.missing
            assert close(replies.values, expected.values)
            alone = ask(Validating(federation), request.select(np.array([0])))
            assert alone.values.isnan().any()


def test_shards_can_be_made_on_the_workers(in_process: InProcess, simulation: Simulation) -> None:
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


def test_workers_read_a_folder(in_process: InProcess, tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = visits()
    for number, rows in enumerate((slice(0, 20), slice(20, 60))):
        part = {name: values[rows] for name, values in table.items()}
        parquet.write_table(pa.table(part), tmp_path / f"{number}.parquet")
    options = {"client": "hospital", "target": "outcome"}
    expected = Simulation(
        ClientData.from_frame(table, client="hospital", target="outcome", standardize=False),
        models.linear(2),
    )
    for data in (tmp_path, str(tmp_path)):
        with on_ray(data, models.linear(2), **options) as federation:
            assert list(federation.client_ids) == list(expected.client_ids)
            assert same_losses(federation, expected)
    with pytest.raises(InputError, match="standardize needs all rows"):
        on_ray(tmp_path, models.linear(2), standardize=True, **options)
    with pytest.raises(InputError, match="client, target: only for data that workers read"):
        on_ray(digits(), **options)


@dataclass
class FakeDataset:
    """What is used of a Ray Dataset."""

    blocks: list[Any]

    def columns(self) -> list[str]:
        return list(self.blocks[0].column_names)

    def to_arrow_refs(self) -> list[Reference]:
        return [Reference(block) for block in self.blocks]


@pytest.mark.parametrize("actors", [1, 2])
def test_a_dataset_is_split_by_client(
    monkeypatch: pytest.MonkeyPatch, in_process: InProcess, actors: int
) -> None:
    pa = pytest.importorskip("pyarrow")
    monkeypatch.setattr("srfca.ray.sources.is_dataset", lambda data: type(data) is FakeDataset)
    table = visits()
    order = np.random.default_rng(0).permutation(60)  # clients are in all blocks
    table = {name: np.asarray(values)[order] for name, values in table.items()}
    whole = pa.table(table)
    dataset = FakeDataset([whole.slice(0, 25), whole.slice(25, 30), whole.slice(55)])
    options = {"client": "hospital", "target": "outcome"}
    by_name = np.argsort(table["hospital"], kind="stable")
    sorted_table = {name: values[by_name] for name, values in table.items()}
    expected = Simulation(
        ClientData.from_frame(sorted_table, client="hospital", target="outcome", standardize=False),
        models.linear(2),
    )
    with on_ray(dataset, models.linear(2), actors=actors, **options) as federation:
        assert list(federation.client_ids) == list(expected.client_ids)
        assert same_losses(federation, expected)
        in_process.lost = [in_process.calls]
        assert same_losses(federation, expected)
        assert federation.num_losses == 1
    with pytest.raises(InputError, match="clinic"):
        on_ray(dataset, models.linear(2), client="clinic", target="outcome")
    gap = FakeDataset([pa.table({"client": ["a", None], "x": [1.0, 2.0], "y": [0.0, 1.0]})])
    with pytest.raises(InputError, match="1 rows have no client"):
        on_ray(gap, models.linear(1))


def visits() -> dict[str, Any]:
    """A table of six clients: ten rows each."""
    g = np.random.default_rng(5)
    hospital = np.repeat([f"h{number}" for number in range(6)], 10)
    return {
        "hospital": hospital, "age": g.normal(size=60), "dose": g.normal(size=60),
        "outcome": g.normal(size=60),
    }  # fmt: skip


def same_losses(federation: Any, simulation: Simulation) -> bool:
    request = Losses(np.arange(6), simulation.initial_model(0).unsqueeze(0))
    return close(federation.ask(request).values, simulation.ask(request).values)


def test_large_models_go_to_each_machine_once(
    monkeypatch: pytest.MonkeyPatch, in_process: InProcess, simulation: Simulation
) -> None:
    monkeypatch.setattr(splitting, "_MIN_SHARED_BYTES", 0)
    rows = torch.stack([simulation.initial_model(seed) for seed in range(20)])
    num_bytes = rows.numel() * rows.element_size()
    with on_ray([DigitsShard(2 * n, 2 * n + 2) for n in range(6)]) as federation:
        received = [used.bytes_in for used in federation.usage()]
        for rule in (Mean(), Median()):
            request = Round(np.arange(12), rows, np.arange(12), LOCAL, Key(0, "x"), rule)
            replies = federation.ask(request)
            assert close(replies.values, ask(simulation, request).values)
            now = [used.bytes_in for used in federation.usage()]
            if isinstance(rule, Mean):
                assert num_bytes < replies.traffic.bytes_down < 1.5 * num_bytes
                assert all(n - b < 1.5 * num_bytes for n, b in zip(now, received, strict=True))


def test_many_models_are_sent_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch, in_process: InProcess, simulation: Simulation
) -> None:
    rows = torch.stack([simulation.initial_model(seed) for seed in range(5)])
    shares = torch.full((5, 10), 0.1)
    shares[3] = torch.arange(10) / 45
    requests: list[Request[Any]] = [
        Losses(np.arange(12), rows), BalancedLosses(np.arange(12), rows, shares),
        Losses(np.arange(12), rows[:0]),
    ]  # fmt: skip
    monkeypatch.setattr(splitting, "_MIN_SHARED_BYTES", 0)
    monkeypatch.setattr(splitting, "_MAX_SHARED_BYTES", 2 * rows[0].numel() * 4)
    assert [len(splitting.tiles(request)) for request in requests] == [3, 3, 1]
    with on_ray(digits()) as federation:
        for request in requests:
            assert close(federation.ask(request).values, simulation.ask(request).values)


def test_sr_fca_on_workers_that_are_lost_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, simulation: Simulation
) -> None:
    method = SRFCA(local=LOCAL, refine_steps=1)
    expected = method.fit(simulation, seed=1)
    stand_in = InProcess(lost=range(3, 10_000, 61))
    stand_in.install(monkeypatch)
    with on_ray(digits()) as federation:
        result = method.fit(federation, seed=1)
        assert federation.num_losses > 0
    assert result.labels.tolist() == expected.labels.tolist()
    assert close(result.models, expected.models)


def test_runs_on_data_of_the_workers_are_analyzed_and_reported(
    in_process: InProcess, tmp_path: Path
) -> None:
    experiment = config.load("rotated-digits").set(["num_clients=6", "steps=12", "local_steps=4"])

    def make(data: ClientData, model: Any, **arguments: Any) -> RayFederation:
        return on_ray([partial(cut, data, 0, 3), partial(cut, data, 3, 6)], model, **arguments)

    federation = runner.make_federation(experiment, 0, make=make)
    run = runner.run_method(experiment, "ifca", federation, seed=0)
    analysis = analyze_run(run)
    assert analysis.differences is not None
    assert analysis.differences.input_shape == (8, 8)
    saved.save(run, experiment, tmp_path / "run", analysis)
    assert (tmp_path / "run" / "run.json").exists()
    assert run.result.report(tmp_path / "page.html", federation).exists()
    with pytest.raises(InputError, match="not here"):
        analyze_run(run, sample_inputs=2)


def test_what_shards_say_must_agree(in_process: InProcess) -> None:
    with pytest.raises(InputError, match="two shards have a client"):
        on_ray([DigitsShard(0, 3), DigitsShard(2, 4)])
    with pytest.raises(InputError, match="shard 1 has train, validation data, but shard 0"):
        on_ray([DigitsShard(0, 3), other_shard])
    with pytest.raises(InputError, match="one function or more"):
        on_ray([])
    with pytest.raises(InputError, match="functions without arguments"):
        on_ray([digits(), digits()])


def other_shard() -> ClientData:
    return ClientData.from_arrays({"a": (torch.ones(9, 8, 8), torch.arange(9))})


def test_warnings_of_workers_are_shown_here(in_process: InProcess, simulation: Simulation) -> None:
    with on_ray(digits()) as federation:
        starts = simulation.initial_model(0).expand(2, -1)
        request = Train(
            np.arange(2), starts, LOCAL, Key(0, "x"), MetaDescent(inner_lr=0.1, delta=0.01)
        )
        with pytest.warns(UserWarning, match="client by client"):
            federation.ask(request)


def test_values_that_are_not_allowed(in_process: InProcess) -> None:
    arguments: dict[str, Any]
    for arguments, message in (
        ({"retries": -1}, "retries must be an integer of at least 0, not -1"),
        ({"retries": None}, "retries must be an integer of at least 0, not None"),
        ({"patience": 0}, "patience must be positive"),
        ({"patience": "long"}, "patience must be positive, not 'long'"),
        ({"num_cpus": "2"}, "num_cpus must be a number of at least 0, not '2'"),
        ({"num_cpus": np.nan}, "num_cpus must be a number of at least 0, not nan"),
        ({"num_gpus": -1}, "num_gpus must be a number of at least 0, not -1"),
        ({"actor_options": "fast"}, "actor_options must be a mapping.*, not 'fast'"),
        ({"actors": 0}, "actors must be at least 1"),
        ({"actors": 5}, "no room for 5 workers"),
    ):
        with pytest.raises(InputError, match=message):
            on_ray(digits(), **arguments)
    with pytest.raises(InputError, match="data must be ClientData, or one function or more"):
        on_ray(None)
    with on_ray(digits()) as federation:
        with pytest.raises(InputError, match="no nothing data"):
            federation.sizes_of("nothing")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="a row of this model has the shape"):
            federation.module(torch.ones(3))
        assert federation.module(federation.initial_model(0))(torch.ones(2, 8, 8)).shape == (2, 10)
        assert len(federation.usage()) == 2


def test_room_for_workers_with_gpus() -> None:
    machines = [Node(8, 2), Node(4, 0)]
    assert find_room(machines).workers == 2
    assert find_room(machines, gpus=0).workers == 3
    assert find_room(machines, workers=2, gpus=0.0).cpus == 4
    assert find_room([Node(8, 1)], gpus=0.5).workers == 2


def test_an_address_without_a_cluster_is_an_error_at_once() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        if not ray.is_initialized():
            with pytest.raises(InputError, match=f"no Ray cluster at '{address}'"):
                connect(address)
