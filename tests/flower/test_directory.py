"""Which clients are in a federation: introductions, restarts, and clients that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flwr.app import Context, Message
from torch import nn

from srfca import models
from srfca.flower import FlowerFederation, client_app
from tests.flower.grid import LocalGrid
from tests.flower.setup import (
    DATA,
    MODEL,
    M,
    change_replies,
    make_app,
    make_federation,
    make_grid,
    make_simulation,
    train_request,
)


def test_a_client_that_comes_back_is_recognized_by_its_id() -> None:
    grid = make_grid()
    federation = make_federation(grid)
    w0 = federation.initial_model(0)
    federation.ask(train_request(w0))
    grid.leave(4)
    assert federation.ask(train_request(w0, round=1)).missing == {4: "not connected"}
    node_id = grid.join(4)
    replies = federation.ask(train_request(w0, round=2))
    assert federation.infos[4].node_id == node_id
    assert not replies.missing
    expected = make_simulation().ask(train_request(w0, round=2)).values
    assert torch.allclose(replies.values, expected, atol=1e-5)


def test_a_restarted_client_takes_its_place_when_the_old_node_is_gone() -> None:
    """Flower notices only after some heartbeats that a node was killed."""
    grid = make_grid()
    federation = make_federation(grid)
    old = federation.infos[4].node_id
    new = grid.join(4)
    for _ in range(5):
        federation.newcomers()
    assert federation.infos[4].node_id == old
    hellos = len(grid.log)
    del grid.contexts[old]
    replies = federation.ask(train_request(federation.initial_model(0)))
    assert federation.infos[4].node_id == new
    assert not replies.missing
    assert len(grid.log) == hellos + M


def test_a_client_with_another_model_or_a_taken_id_is_refused(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    def app(message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        model = models.linear(6, 5) if partition == 8 else MODEL
        data = DATA.select(partition % M)
        reply: Message = client_app(model=model, data=lambda context: data, device="cpu")(
            message, context
        )
        return reply

    federation = make_federation(LocalGrid(app, range(M + 2)))
    assert federation.client_ids == tuple(str(client) for client in range(M))
    assert "its model has 35 float32 coordinates, but the server's has 28" in flower_log.text
    assert "has the id '1' of another connected node" in flower_log.text
    assert federation.newcomers() == []


def frozen_model(scale: float) -> nn.Module:
    """Return a network with a frozen layer, whose weights depend on the scale."""
    first = nn.Linear(6, 5)
    nn.init.constant_(first.weight, scale)
    nn.init.zeros_(first.bias)
    return nn.Sequential(first.requires_grad_(False), nn.Tanh(), nn.Linear(5, 4))


def test_a_client_with_other_frozen_parameters_is_refused(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    def app(message: Message, context: Context) -> Message:
        scale = 2.0 if int(context.node_config["partition-id"]) == 3 else 1.0
        reply: Message = make_app(model=lambda: frozen_model(scale))(message, context)
        return reply

    model = lambda: frozen_model(1.0)  # noqa: E731
    federation = FlowerFederation(LocalGrid(app, range(M)), model, num_clients=M - 1)
    assert "3" not in federation.client_ids
    assert federation.newcomers() == []
    assert "its frozen parameters differ from the server's (digest '" in flower_log.text
    assert "give both the same pretrained weights" in flower_log.text
    assert federation.fingerprint() == make_simulation(model).fingerprint().split()[-1]
    w0 = federation.initial_model(0)
    assert len(w0) == 24, "rows hold what is trained"
    request = train_request(w0)
    clients = request.select(torch.tensor([0, 1, 2, 4, 5, 6, 7]).numpy())
    expected = make_simulation(model).ask(clients).values
    rows = federation.ask(train_request(w0).select(torch.arange(M - 1).numpy())).values
    assert torch.allclose(rows, expected, atol=1e-5)


@pytest.mark.parametrize("client_id", ["²", "9" * 5000, "a\nb", ""])
def test_an_unusual_client_id_does_not_stop_the_server(client_id: str) -> None:
    grid = make_grid()

    def rename(reply: Message) -> None:
        reply.content.config_records["values"]["client"] = client_id

    change_replies(grid, 3, "query.hello", rename)
    federation = make_federation(grid, num_clients=M - 1)
    expected = tuple(c for c in map(str, range(M)) if c != "3")
    assert federation.client_ids[: M - 1] == expected
    newcomers = [federation.newcomers() for _ in range(2)][-1]
    assert newcomers == ([client_id] if client_id == "²" else [])


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("train", 0, "it has 0 train samples"),
        ("test", -1, "it has -1 test samples"),
        ("features", 0, "its samples have 0 features"),
        ("signature", "{}", "it does not describe its samples: a model's signature is damaged"),
        ("signature", "no JSON", "it does not describe its samples"),
        ("frozen", "abc", "its frozen parameters differ from the server's"),
    ],
)
def test_an_introduction_is_checked(
    key: str, value: Any, reason: str, flower_log: pytest.LogCaptureFixture
) -> None:
    grid = make_grid()
    change_replies(
        grid,
        3,
        "query.hello",
        lambda reply: reply.content.config_records["values"].update({key: value}),
    )
    federation = make_federation(grid, num_clients=M - 1)
    assert "3" not in federation.client_ids
    assert reason in flower_log.text


def test_a_node_that_fails_to_introduce_itself_is_asked_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("srfca.flower.directory.RETRY_AFTER", (0.1, 0.2))
    grid = make_grid()
    attempts = []

    def fail_first(partition: int, message: Message) -> object:
        if (partition, message.metadata.message_type) != (5, "query.hello"):
            return None
        attempts.append(partition)
        return RuntimeError("the database is starting") if len(attempts) <= 5 else None

    grid.fault = fail_first
    assert make_federation(grid).client_ids == tuple(map(str, range(M)))
    assert len(attempts) == 6


def test_a_client_that_has_left_is_not_chosen() -> None:
    grid = make_grid([0, 1])
    node_ids, polls = grid.get_node_ids, []

    def come_and_go() -> list[int]:
        polls.append(1)
        if len(polls) == 3:
            grid.leave(0)
        if len(polls) in (5, 7):
            grid.join(len(polls) // 2)
        return node_ids()

    grid.get_node_ids = come_and_go  # type: ignore[method-assign]
    assert make_federation(grid, num_clients=3).client_ids == ("1", "2", "3")


def test_a_client_must_hold_out_data_like_the_others() -> None:
    grid = make_grid()
    federation = make_federation(grid)
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
