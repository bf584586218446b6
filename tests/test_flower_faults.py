"""What clients on Flower may do wrong, and servers that are started again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message
from torch import nn

from srfca import SRFCA, Global, InputError, methods, models
from srfca.apps import new_app
from srfca.flower import FlowerFederation, client_app
from srfca.flower.records import ARRAYS, pack
from srfca.flower.serve import join, place, serve
from srfca.flower.settings import Settings
from srfca.methods import Result
from srfca.random import Key
from tests.flower_grid import LocalGrid
from tests.test_flower import (
    DATA,
    SR_FCA,
    WORK,
    M,
    make,
    make_app,
    make_grid,
    own_data,
    raising_in,
    right,
    run_app,
)


def changed(grid: LocalGrid, partition: int, kind: str, change: Any) -> None:
    """Let a client change its answers to a kind of question."""

    def fault(who: int, message: Message) -> object:
        if (who, message.metadata.message_type) != (partition, kind):
            return None
        [context] = [
            c for c in grid.contexts.values() if c.node_config["partition-id"] == partition
        ]
        reply = grid.app(message, context)
        change(reply)
        return reply

    grid.fault = fault


def scaled(name: str, by: float) -> Any:
    def change(reply: Message) -> None:
        arrays = reply.content.array_records[ARRAYS]
        array: Array = arrays[name]
        dtype = getattr(torch, array.dtype)
        numbers = torch.frombuffer(bytearray(array.data), dtype=dtype).view(array.shape)
        reply.content[ARRAYS] = ArrayRecord({**arrays, name: pack(numbers * by)})

    return change


def test_an_answer_to_nothing_is_dropped() -> None:
    grid = make_grid()
    federation = make(grid, timeout=0.3)

    def astray(reply: Message) -> None:
        reply.metadata.__dict__["_reply_to_message_id"] = "x"

    changed(grid, 3, "train.fit", astray)
    rows = federation.fit(federation.initial(0).expand(M, -1), range(M), WORK, Key(0, "x"))
    assert rows.isnan().all(1).nonzero().flatten().tolist() == [3]
    assert [absence.client for absence in federation.wire.absences] == ["3"]


@pytest.mark.parametrize("name", ["²", "9" * 5000, "a\nb", ""])
def test_a_strange_name_does_not_end_the_server(name: str) -> None:
    grid = make_grid()

    def renamed(reply: Message) -> None:
        reply.content.config_records["values"]["client"] = name

    changed(grid, 3, "query.hello", renamed)
    federation = make(grid, clients=M - 1)
    expected = tuple(c for c in map(str, range(M)) if c != "3")
    assert federation.clients[: M - 1] == expected
    assert [federation.newcomers() for _ in range(2)][-1] == ([name] if name == "²" else [])


def test_what_is_kept_of_a_wrong_answer_is_short() -> None:
    grid = make_grid()
    federation = make(grid)
    changed(
        grid,
        3,
        "train.fit",
        lambda reply: reply.content.config_records["values"].update(client="y" * 10**6),
    )
    federation.fit(federation.initial(0).expand(M, -1), range(M), WORK, Key(0, "x"))
    assert len(federation.wire.absences[0].why) == 500


DEEP = models.mlp(6, 16, 16, 4)


@pytest.mark.parametrize("distance", ["cross_loss", "one_sided_loss"])
def test_a_huge_model_of_one_client_does_not_silence_the_others(distance: str) -> None:
    grid = LocalGrid(client_app(model=DEEP, data=own_data, device="cpu"), range(M))
    federation = FlowerFederation(grid, DEEP, clients=M)
    changed(grid, 5, "train.fit", scaled("rows", 1e13))
    result = SRFCA(work=WORK, distance=distance, threshold="45%", trim=0.3).fit(federation, seed=1)
    assert right(result.labels, [client for client in range(M) if client != 5])
    assert not federation.wire.absences


@pytest.mark.parametrize(
    ("method", "kind", "name", "by"),
    [
        (SR_FCA, "query.losses", "losses", -torch.inf),
        (SR_FCA, "query.losses", "losses", -1e300),
        (SR_FCA, "query.losses", "validation", torch.nan),
        (SR_FCA, "query.losses", "validation", 2.0),
        (methods.FedEM(k=2, work=WORK), "query.shares", "shares", torch.inf),
        (methods.FedEM(k=2, work=WORK), "query.shares", "shares", -1.0),
    ],
)
def test_figures_that_cannot_be_are_refused(
    method: methods.Method, kind: str, name: str, by: float
) -> None:
    grid = make_grid()
    federation = make(grid)
    changed(grid, 5, kind, scaled(name, by))
    result = method.fit(federation, seed=1)
    assert {absence.client for absence in federation.wire.absences} == {"5"}
    assert result.models.isfinite().all()
    if method is SR_FCA:
        assert right(result.labels, [client for client in range(M) if client != 5])


def test_an_infinite_loss_is_bad_and_no_more() -> None:
    grid = make_grid()
    federation = make(grid)
    changed(grid, 5, "query.losses", scaled("losses", torch.inf))
    result = SR_FCA.fit(federation, seed=1)
    assert not federation.wire.absences
    assert right(result.labels, [client for client in range(M) if client != 5])
    assert result.reach is not None
    assert result.reach.isfinite().all()


def test_a_training_that_nobody_answers_is_an_error(tmp_path: Path) -> None:
    grid = make_grid()
    grid.fault = raising_in("train.fit", *range(M))
    with pytest.raises(InputError, match="none of 8 clients answers fit: error 2: out of luck"):
        Global(work=WORK).fit(make(grid), journal=tmp_path)
    grid.fault = lambda partition, message: None
    again = Global(work=WORK).fit(make(grid), journal=tmp_path)
    assert not torch.equal(again.models[0], make(grid).initial(0))
    diverging = replace(WORK, lr=3e38, momentum=0.9)
    with pytest.raises(InputError, match=r"infinite or NaN \(if training has diverged, lower lr"):
        Global(work=diverging).fit(make(make_grid()))


def test_a_node_that_cannot_say_who_it_is_is_asked_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("srfca.flower.post._PAUSES", (0.1, 0.2))
    grid = make_grid()
    times = []

    def starting(partition: int, message: Message) -> object:
        if (partition, message.metadata.message_type) != (5, "query.hello"):
            return None
        times.append(partition)
        return RuntimeError("the data base is starting") if len(times) <= 5 else None

    grid.fault = starting
    assert make(grid).clients == tuple(map(str, range(M)))
    assert len(times) == 6


def test_a_client_that_has_left_is_not_chosen() -> None:
    grid = make_grid([0, 1])
    nodes, looks = grid.get_node_ids, []

    def come_and_go() -> list[int]:
        looks.append(1)
        if len(looks) == 3:
            grid.leave(0)
        if len(looks) in (5, 7):
            grid.join(len(looks) // 2)
        return nodes()

    grid.get_node_ids = come_and_go  # type: ignore[method-assign]
    assert make(grid, clients=3).clients == ("1", "2", "3")


def test_everybody_holds_out_what_the_others_do() -> None:
    grid = make_grid()
    federation = make(grid)
    grid.leave(3)
    usual = grid.app
    grid.app = make_app(validation=0.0)
    grid.join(3)
    federation.newcomers()
    federation.newcomers()
    assert "validation" in federation.splits
    assert 3 not in federation.ready()
    grid.leave(3)
    grid.app = usual
    grid.join(3)
    federation.newcomers()
    assert 3 in federation.ready()


def received(got: dict[int, torch.Tensor]) -> Any:
    def receive(module: nn.Module, context: Context) -> None:
        row = torch.cat([p.detach().flatten() for p in module.parameters()])
        got[int(str(context.node_config["partition-id"]))] = row

    return receive


def test_who_is_fine_tuned_or_comes_late_has_a_model() -> None:
    got: dict[int, torch.Tensor] = {}
    grid = make_grid(range(M - 1), receive=received(got))

    def joins(partition: int, message: Message) -> object:
        if len(grid.log) == 3 * M:
            grid.join(7)
        return None

    grid.fault = joins
    done: list[Result] = []
    run_app(
        grid,
        {"clients": M - 1, "seed": 1, "personal-steps": 5},
        done=lambda result, federation: done.append(result),
    )
    [result] = done
    assert result.partition == DATA.truth
    assert result.tuned is not None
    assert result.tuned_steps is not None
    assert torch.equal(result.tuned[7], result.models[result.labels[7]])
    assert int(result.tuned_steps[7]) == 0
    assert sorted(got) == list(range(M))


@pytest.mark.parametrize("gone_after", [M, 5 * M])
def test_who_was_away_is_given_its_model_when_it_is_back(gone_after: int) -> None:
    got: dict[int, torch.Tensor] = {}
    grid = make_grid(receive=received(got))

    def away(partition: int, message: Message) -> object:
        if len(grid.log) == gone_after:
            grid.leave(3)
        if message.metadata.message_type == "query.keep" and len(grid.contexts) < M:
            grid.join(3)
        return None

    grid.fault = away
    config = {"clients": M, "seed": 1, "serve": True, "look": 0.02, "serve-for": 1.0}
    run_app(grid, config | {"timeout": 0.3})
    assert sorted(got) == list(range(M))
    keeps = [who for who, kind in grid.log if kind == "query.keep"]
    assert sorted(keeps) == list(range(M)), "each once"


def test_a_newcomer_that_fails_once_is_asked_again() -> None:
    grid = make_grid(range(M - 1))
    federation = make(grid, clients=M - 1)
    result = SR_FCA.fit(federation, seed=1)
    grid.join(7)
    federation.newcomers()
    grid.fault = raising_in("query.losses", 7)
    result = place(federation, result, federation.newcomers())
    assert result.labels[7] == -1
    grid.fault = lambda partition, message: None
    assert join(federation, result, [7]).partition == DATA.truth


def test_a_server_that_is_killed_while_serving_goes_on_serving(tmp_path: Path) -> None:
    got: dict[int, torch.Tensor] = {}
    grid = make_grid(range(M - 1), receive=received(got))
    config: dict[str, Any] = {"clients": M - 1, "seed": 1, "out": str(tmp_path), "look": 0.01}
    config |= {"serve": True, "refresh": 0.2, "serve-for": 1.5}

    def joins(partition: int, message: Message) -> object:
        if message.metadata.message_type == "query.keep" and len(grid.contexts) < M:
            grid.join(7)
        return None

    grid.fault = joins
    run_app(grid, config)
    before, sent = Result.load(tmp_path), dict(got)
    assert len(before.clients) == M
    again = make_grid(receive=received(got))
    run_app(again, config | {"serve": False})
    after = Result.load(tmp_path)
    assert torch.equal(after.models, before.models)
    assert after.clients == before.clients
    assert all(torch.equal(got[client], sent[client]) for client in range(M))
    assert not any(kind == "train.fit" for _, kind in again.log)
    run_app(make_grid(), config | {"serve-for": 0.8})
    names = [stage.name for stage in Result.load(tmp_path).history]
    assert len(names) > len(before.history)
    assert len(set(names)) == len(names), "refreshes are counted on"


def test_a_run_of_other_clients_is_refused(tmp_path: Path) -> None:
    grid = make_grid()
    grid.fault = raising_in("train.fit", *range(M))
    config = {"clients": M, "out": str(tmp_path)}
    with pytest.raises(InputError, match="none of 8"):
        run_app(grid, config)
    with pytest.raises(InputError, match="holds a run of 8 clients, not of 6"):
        run_app(make_grid(), config | {"clients": 6})


def test_refreshes_that_were_missed_are_not_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import srfca.flower.serve as serving

    federation = make()
    result = SR_FCA.fit(federation, seed=1)
    refreshed, starts, now = serving.refreshed, [], [0.0]

    def slow(*arguments: Any) -> Result:
        starts.append(now[0])
        now[0] += 10.0 if len(starts) == 1 else 0.0
        return refreshed(*arguments)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(serving, "refreshed", slow)
    monkeypatch.setattr(serving, "monotonic", lambda: now[0])
    monkeypatch.setattr(serving, "sleep", sleep)
    settings = Settings(clients=M, look=0.5, refresh=2.0, serve_for=17.0, serve=True)
    serving.serve(SR_FCA, settings, federation, result)
    assert starts == [2.0, 14.0, 16.0]


def test_a_refresh_that_nobody_answers_changes_nothing() -> None:
    grid = make_grid()
    federation = make(grid)
    result = SR_FCA.fit(federation, seed=1)
    grid.fault = raising_in("train.fit", *range(M))
    settings = Settings(clients=M, look=0.01, refresh=0.01, serve_for=0.2, serve=True)
    assert serve(SR_FCA, settings, federation, result) is result


@pytest.mark.parametrize("name", ["class", "srfca", "json"])
def test_an_app_is_not_called_like_something_else(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="means something else in Python"):
        new_app(tmp_path / name)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file is a file"):
        new_app(tmp_path / "file")
