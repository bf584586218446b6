"""The server app: it runs a method, saves the result, and resumes a run that was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message
from torch import nn

from srfca import InputError
from srfca.flower import FlowerFederation
from srfca.flower.server import traffic_lines
from srfca.methods import Result
from tests.flower.grid import LocalGrid
from tests.flower.setup import (
    DATA,
    SR_FCA,
    M,
    change_replies,
    is_correct,
    make_grid,
    make_simulation,
    raising,
    run_app,
    store_models,
)


def kill_after(grid: LocalGrid, messages: int) -> None:
    """Let the server be killed when it sends a message, after this many."""

    def kill(partition: int, message: Message) -> object:
        if len(grid.log) > messages:
            raise KeyboardInterrupt
        return None

    grid.fault = kill


def test_a_server_app_runs_saves_and_serves(tmp_path: Path) -> None:
    results = []
    grid = make_grid(receive=lambda module, context: None)
    config: dict[str, Any] = {"num-clients": M - 1, "seed": 1, "out": str(tmp_path), "poll": 0.01}
    config |= {"serve": True, "serve-for": 0.5, "refresh": 0.2, "refresh-rounds": 1}
    grid.leave(7)

    def join_at_the_end(partition: int, message: Message) -> object:
        if message.metadata.message_type == "query.keep" and len(grid.contexts) < M:
            grid.join(7)
        return None

    grid.fault = join_at_the_end
    run_app(grid, config, on_result=lambda result, federation: results.append(result))
    [result] = results
    assert is_correct(result.labels, list(range(M - 1)))
    served = Result.load(tmp_path)
    assert served.client_ids == tuple(map(str, range(M)))
    assert served.partition == DATA.truth
    assert [stage.name for stage in served.history][-1].startswith("REFRESH")


def test_a_client_that_connects_late_is_placed_at_the_end() -> None:
    grid = make_grid()
    grid.leave(7)

    def join_later(partition: int, message: Message) -> object:
        if len(grid.log) == 3 * M:
            grid.join(7)
        return None

    grid.fault = join_later
    results: list[tuple[Result, FlowerFederation]] = []
    config = {"num-clients": M - 1, "seed": 1}
    run_app(grid, config, on_result=lambda *both: results.append(both))
    [(result, federation)] = results
    assert result.client_ids == tuple(map(str, range(M)))
    assert result.partition == DATA.truth
    lines = traffic_lines(result, federation)
    assert lines[0].startswith(f"  ONE_SHOT: {3 * (M - 1)} messages, "), "with introductions"
    assert lines[-1].startswith(f"total: {federation.traffic.messages} messages, ")
    assert lines[-1].endswith(", 0 missing replies")


def test_late_and_fine_tuned_clients_have_a_model() -> None:
    received: dict[int, nn.Module] = {}
    grid = make_grid(range(M - 1), receive=store_models(received))

    def join_later(partition: int, message: Message) -> object:
        if len(grid.log) == 3 * M:
            grid.join(7)
        return None

    grid.fault = join_later
    results: list[Result] = []
    run_app(
        grid,
        {"num-clients": M - 1, "seed": 1, "fine-tune-steps": 5},
        on_result=lambda result, federation: results.append(result),
    )
    [result] = results
    assert result.partition == DATA.truth
    assert result.fine_tuned_models is not None
    assert result.fine_tuned_steps is not None
    assert torch.equal(result.fine_tuned_models[7], result.models[result.labels[7]])
    assert int(result.fine_tuned_steps[7]) == 0
    assert sorted(received) == list(range(M))


def test_a_killed_server_resumes_with_its_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for all of them, however long their introductions take."""
    monkeypatch.setattr("srfca.flower.channel.PATIENCE", 0.0)
    expected = SR_FCA.fit(make_simulation(), seed=1)
    for messages in (M + 3, 3 * M, 4 * M + 2):
        grid = make_grid()
        kill_after(grid, messages)
        folder = tmp_path / str(messages)
        config = {"num-clients": M, "seed": 1, "out": str(folder)}
        with pytest.raises(KeyboardInterrupt):
            run_app(grid, config)
        assert not (folder / "result.json").exists()
        again = make_grid(reversed(range(M)))
        again.one_by_one = True
        run_app(again, config)
        result = Result.load(folder)
        assert result.client_ids == expected.client_ids
        assert result.partition == expected.partition
        assert torch.allclose(result.models, expected.models, atol=1e-5)
        assert not any("missing" in stage.notes for stage in result.history)


def test_a_killed_server_resumes_without_a_client_that_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srfca.flower.channel.PATIENCE", 0.3)
    grid = make_grid()
    kill_after(grid, 4 * M)
    config = {"num-clients": M, "seed": 1, "out": str(tmp_path), "min-clients": M - 1}
    with pytest.raises(KeyboardInterrupt):
        run_app(grid, config)
    run_app(make_grid([client for client in range(M) if client != 2]), config)
    result = Result.load(tmp_path)
    assert result.client_ids == tuple(map(str, range(M)))
    assert result.partition == DATA.truth
    missing = [reply for stage in result.history for reply in stage.notes.get("missing", [])]
    assert {reply["client"] for reply in missing} == {"2"}
    (tmp_path / "clients.json").write_text("[{}]")
    with pytest.raises(InputError, match=r"clients\.json is damaged"):
        run_app(make_grid(), config)


def test_a_server_that_is_killed_while_serving_continues_to_serve(tmp_path: Path) -> None:
    received: dict[int, nn.Module] = {}
    grid = make_grid(range(M - 1), receive=store_models(received))
    config: dict[str, Any] = {"num-clients": M - 1, "seed": 1, "out": str(tmp_path), "poll": 0.01}
    config |= {"serve": True, "refresh": 0.2, "serve-for": 1.5}

    def join_at_the_end(partition: int, message: Message) -> object:
        if message.metadata.message_type == "query.keep" and len(grid.contexts) < M:
            grid.join(7)
        return None

    grid.fault = join_at_the_end
    run_app(grid, config)
    before = Result.load(tmp_path)
    states = {client: module.state_dict() for client, module in received.items()}
    assert len(before.client_ids) == M
    again = make_grid(receive=store_models(received))
    run_app(again, config | {"serve": False})
    after = Result.load(tmp_path)
    assert torch.equal(after.models, before.models)
    assert after.client_ids == before.client_ids
    for client in range(M):
        for name, parameter in received[client].state_dict().items():
            assert torch.equal(parameter, states[client][name])
    assert not any(kind == "train.train" for _, kind in again.log)
    run_app(make_grid(), config | {"serve-for": 0.8})
    names = [stage.name for stage in Result.load(tmp_path).history]
    assert len(names) > len(before.history)
    assert len(set(names)) == len(names), "numbers of refreshes continue"


def test_a_folder_with_a_run_of_other_clients_is_refused(tmp_path: Path) -> None:
    grid = make_grid()
    grid.fault = raising("train.train", *range(M))
    config = {"num-clients": M, "out": str(tmp_path)}
    with pytest.raises(InputError, match="none of 8"):
        run_app(grid, config)
    with pytest.raises(InputError, match="holds a run of 8 clients, not of 6"):
        run_app(make_grid(), config | {"num-clients": 6})


@pytest.mark.parametrize(("key", "asks_clients"), [("local", False), ("fedem", True)])
def test_serving_needs_cluster_models(key: str, asks_clients: bool) -> None:
    grid = make_grid()
    with pytest.raises(InputError, match="has no cluster models to serve"):
        run_app(grid, {"num-clients": M, "method": key, "serve": True})
    assert bool(grid.log) == asks_clients


def test_rounds_and_the_end_of_serving_are_logged(flower_log: pytest.LogCaptureFixture) -> None:
    grid = make_grid()
    grid.fault = raising("query.keep", 3)
    run_app(grid, {"num-clients": M, "seed": 1, "serve": True, "serve-for": 0.1, "poll": 0.02})
    for number in (1, 2, 3):
        assert f"TRIMMED_MEAN_GD 1: round {number} of 3" in flower_log.text
    assert "serving ended after 0.1 s: 8 clients, 2 clusters" in flower_log.text


def test_a_run_resumes_with_fewer_clients_if_one_did_not_fit(tmp_path: Path) -> None:
    grid = make_grid()
    lie = {"features": 3}
    change_replies(
        grid, 3, "query.hello", lambda reply: reply.content.config_records["values"].update(lie)
    )
    honest = grid.fault

    def kill_later(partition: int, message: Message) -> object:
        if len(grid.log) > 4 * M:
            raise KeyboardInterrupt
        return honest(partition, message)

    grid.fault = kill_later
    config = {"num-clients": M, "seed": 1, "out": str(tmp_path)}
    with pytest.raises(KeyboardInterrupt):
        run_app(grid, config)
    run_app(make_grid(), config)
    client_ids = Result.load(tmp_path).client_ids
    assert client_ids[: M - 1] == ("0", "1", "2", "4", "5", "6", "7")
