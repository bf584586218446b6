"""After the method: new clients, clients that come back, and refreshes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, Message
from torch import nn

from srfca import SRFCA, ClientData, InputError, LocalTraining, Partition
from srfca.callbacks import ProgressFolder
from srfca.flower import serving
from srfca.flower.serving import place_newcomers, place_unclustered, refresh, serve
from srfca.flower.settings import Settings
from srfca.methods import Result, RunStart
from srfca.watch.progress import ProgressReader
from tests.flower.grid import LocalGrid
from tests.flower.setup import (
    DATA,
    SR_FCA,
    FreshProcess,
    M,
    make_federation,
    make_grid,
    make_simulation,
    no_fault,
    raising,
    row_of,
    run_app,
    store_models,
)


def test_new_clients_are_placed_and_receive_their_model() -> None:
    received: dict[int, nn.Module] = {}
    grid = make_grid(range(M - 2), receive=store_models(received))
    federation = make_federation(grid, num_clients=M - 2)
    result = SR_FCA.fit(federation, seed=1)
    assert federation.newcomers() == []
    grid.join(6)
    grid.join(7)
    federation.newcomers()
    assert federation.newcomers() == ["6", "7"]
    placed = place_newcomers(federation, result, ["6", "7"])
    assert placed.partition == DATA.truth
    federation.keep(placed.client_models)
    assert sorted(received) == list(range(M))
    x = torch.randn(5, 6)
    simulation = make_simulation()
    for client in range(M):
        expected = simulation.module(placed.client_models[client])(x)
        assert torch.equal(received[client](x), expected)
    with pytest.raises(InputError, match="is in the federation already"):
        federation.admit(["6"])
    with pytest.raises(InputError, match="never connected"):
        federation.admit(["nobody"])


def test_a_new_client_has_its_clusters_model_where_clients_have_fine_tuned() -> None:
    received: dict[int, nn.Module] = {}
    grid = make_grid(range(M - 1), receive=store_models(received))
    federation = make_federation(grid, num_clients=M - 1)
    result = SR_FCA.fit(federation, seed=1)
    tuned = replace(result, individual_models=result.client_models + 0.25)
    grid.join(7)
    settings = Settings(num_clients=M, poll=0.01, serve_for=0.1, serve=True)
    served = serve(SR_FCA, settings, federation, tuned)
    assert served.partition == DATA.truth
    assert served.individual_models is not None
    assert torch.equal(served.individual_models[:7], result.client_models + 0.25)
    assert torch.equal(served.individual_models[7], result.models[int(served.labels[7])])
    assert sorted(received) == list(range(M))
    for client in range(M):
        assert torch.equal(row_of(received[client]), served.individual_models[client])
    refreshed = refresh(federation, served, SR_FCA.local, rounds=1, number=1)
    assert [stage.name for stage in refreshed.history[-2:]] == ["REFRESH 1", "TRY_FINE_TUNE"]


def test_a_new_client_that_fails_once_is_asked_again() -> None:
    grid = make_grid(range(M - 1))
    federation = make_federation(grid, num_clients=M - 1)
    result = SR_FCA.fit(federation, seed=1)
    grid.join(7)
    federation.newcomers()
    grid.fault = raising("query.loss_moments", 7)
    result = place_newcomers(federation, result, federation.newcomers())
    assert result.labels[7] == -1
    grid.fault = no_fault
    assert place_unclustered(federation, result, [7]).partition == DATA.truth


@pytest.mark.parametrize("leaves_after", [M, 5 * M])
def test_a_client_that_was_away_receives_its_model_when_it_is_back(leaves_after: int) -> None:
    received: dict[int, nn.Module] = {}
    grid = make_grid(receive=store_models(received))

    def leave_and_return(partition: int, message: Message) -> object:
        if len(grid.log) == leaves_after:
            grid.leave(3)
        if message.metadata.message_type == "query.keep" and len(grid.contexts) < M:
            grid.join(3)
        return None

    grid.fault = leave_and_return
    config = {"num-clients": M, "seed": 1, "serve": True, "poll": 0.02, "serve-for": 1.0}
    run_app(grid, config | {"timeout": 0.3})
    assert sorted(received) == list(range(M))
    keeps = [partition for partition, kind in grid.log if kind == "query.keep"]
    assert sorted(keeps) == list(range(M)), "each client once"


def test_a_refresh_follows_clients_whose_data_change(tmp_path: Path) -> None:
    swapped: dict[int, int] = {}

    def changing_data(context: Context) -> ClientData:
        partition = int(context.node_config["partition-id"])
        x, y = DATA.train.of(swapped.get(partition, partition))
        return ClientData.from_arrays({str(partition): (x, y)}, {str(partition): (x, y)})

    grid = LocalGrid(FreshProcess(data=changing_data), range(M))
    federation = make_federation(grid)
    local = LocalTraining(steps=60, local_steps=20, batch_size=10, lr=0.5)
    result = SRFCA(local=local, threshold="45%", merge_threshold="auto").fit(federation, seed=1)
    assert result.partition == DATA.truth
    swapped |= {0: 1, 1: 0}
    loss_before = result.scores(federation).loss.mean()
    watched, reader = ProgressFolder(tmp_path), ProgressReader(tmp_path)
    watched.run_start(RunStart(result.method, {}, 1, tuple(federation.client_ids)))
    refreshed = refresh(federation, result, local, rounds=2, number=1, watched=watched)
    progress = reader.read()
    assert progress is not None
    assert [stage.name for stage in progress.history] == ["REFRESH 1"]
    assert progress.now["spent"]["local_steps"] > 0
    assert DATA.truth is not None
    truth = DATA.truth.labels.copy()
    truth[[0, 1]] = truth[[1, 0]]
    assert refreshed.partition == Partition(truth)
    assert refreshed.history[-1].name == "REFRESH 1"
    assert refreshed.history[-1].notes["moved"] == 2
    assert refreshed.scores(federation).loss.mean() < loss_before
    assert not torch.equal(refreshed.models, result.models)


def test_drift_causes_a_refresh_and_is_logged(flower_log: pytest.LogCaptureFixture) -> None:
    swapped: dict[int, int] = {}

    def changing_data(context: Context) -> ClientData:
        partition = int(context.node_config["partition-id"])
        x, y = DATA.train.of(swapped.get(partition, partition))
        return ClientData.from_arrays({str(partition): (x, y)}, {str(partition): (x, y)})

    grid = LocalGrid(FreshProcess(data=changing_data), range(M))
    federation = make_federation(grid)
    local = LocalTraining(steps=60, local_steps=20, batch_size=10, lr=0.5)
    method = SRFCA(local=local, threshold="45%", merge_threshold="auto")
    result = method.fit(federation, seed=1)
    settings = Settings(num_clients=M, poll=0.01, drift_check=0.01, serve_for=0.3, serve=True)
    assert serve(method, settings, federation, result) is result, "no drift, no refresh"
    assert "drift:" not in flower_log.text
    swapped |= {0: 1, 1: 0}
    served = serve(method, settings, federation, result)
    names = [stage.name for stage in served.history if stage.name.startswith("REFRESH")]
    assert names == ["REFRESH 1"], "once"
    assert DATA.truth is not None
    truth = DATA.truth.labels.copy()
    truth[[0, 1]] = truth[[1, 0]]
    assert served.partition == Partition(truth)
    for client in (0, 1):
        before, after = int(DATA.truth.labels[client]), int(truth[client])
        assert f"drift: client '{client}' has left cluster {before}" in flower_log.text
        move = f"REFRESH 1: client '{client}' moved from cluster {before} to cluster {after}"
        assert f"{move}: fits another cluster" in flower_log.text


def test_a_client_that_does_not_reply_to_a_refresh_stays_in_its_cluster() -> None:
    grid = make_grid()
    federation = make_federation(grid)
    result = SR_FCA.fit(federation, seed=1)
    grid.leave(3)
    refreshed = refresh(federation, result, SR_FCA.local, rounds=1, number=1)
    assert refreshed.partition == result.partition == DATA.truth
    assert refreshed.history[-1].notes["moved"] == 0


def test_missed_refreshes_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = make_federation()
    result = SR_FCA.fit(federation, seed=1)
    refresh, starts, now = serving.refresh, [], [0.0]

    def slow_refresh(*arguments: Any, **options: Any) -> Result:
        starts.append(now[0])
        now[0] += 10.0 if len(starts) == 1 else 0.0
        assert options == {"aggregation": SR_FCA.rows_rule}, "as robust as the method"
        return refresh(*arguments, **options)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(serving, "refresh", slow_refresh)
    monkeypatch.setattr(serving, "monotonic", lambda: now[0])
    monkeypatch.setattr(serving, "sleep", sleep)
    settings = Settings(num_clients=M, poll=0.5, refresh=2.0, serve_for=17.0, serve=True)
    serving.serve(SR_FCA, settings, federation, result)
    assert starts == [2.0, 14.0, 16.0]


def test_a_refresh_without_replies_changes_nothing() -> None:
    grid = make_grid()
    federation = make_federation(grid)
    result = SR_FCA.fit(federation, seed=1)
    grid.fault = raising("train.train", *range(M))
    settings = Settings(num_clients=M, poll=0.01, refresh=0.01, serve_for=0.2, serve=True)
    assert serve(SR_FCA, settings, federation, result) is result
