"""One message to each client: retries, timeouts, and replies that are not valid."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from flwr.app import Array, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from torch import Tensor

from srfca.federation import Losses
from srfca.federation.middleware.counting import MissingReply
from srfca.flower.records import ARRAYS, RAW, VALUES, make_content, pack, unpack
from tests.flower.setup import (
    EVERYONE,
    M,
    change_replies,
    make_federation,
    make_grid,
    make_simulation,
    no_fault,
    no_reply,
    train_request,
)


def test_a_client_that_has_lost_its_rows_is_sent_them_again() -> None:
    grid = make_grid()
    federation = make_federation(grid)
    rows = torch.stack([federation.initial_model(seed) for seed in range(M)])
    federation.ask(Losses(EVERYONE, rows))
    for context in grid.contexts.values():
        context.state = RecordDict()
    trained = federation.ask(train_request(rows))
    expected = make_simulation().ask(train_request(rows)).values
    assert torch.allclose(trained.values, expected, atol=1e-5)
    assert not trained.missing
    assert not federation.missing
    assert grid.log[-2 * M :] == [(p, "train.train") for p in range(M)] * 2


@pytest.mark.parametrize("crashes", [1, 2])
def test_a_client_whose_process_crashes_is_asked_once_more(crashes: int) -> None:
    grid = make_grid()
    federation = make_federation(grid)
    requests = []

    def crash(partition: int, message: Message) -> object:
        if partition != 3:
            return None
        requests.append(partition)
        error = Error(ErrorCode.CLIENT_APP_CRASHED, "stopped responding")
        return Message(error, reply_to=message) if len(requests) <= crashes else None

    grid.fault = crash
    rows = torch.stack([federation.initial_model(seed) for seed in range(M)])
    replies = federation.ask(train_request(rows))
    expected = make_simulation().ask(train_request(rows))
    assert requests == [3, 3]
    if crashes == 2:
        reason = f"error {ErrorCode.CLIENT_APP_CRASHED}: stopped responding"
        expected = expected.without([3], reason)
        assert federation.missing == [MissingReply("3", "train", reason)]
    else:
        assert not federation.missing
    assert replies.missing == expected.missing
    assert torch.allclose(replies.values, expected.values, atol=1e-5)


def invalid_replies() -> dict[str, tuple[Callable[[Message], object], str]]:
    """Changes of a reply to ``train`` that make it invalid, and the reason that is given."""

    def change_array(make: Callable[[Array], Array]) -> Callable[[Message], object]:
        def change(reply: Message) -> None:
            arrays = reply.content.array_records[ARRAYS]
            arrays["rows"] = make(arrays["rows"])

        return change

    def change_tensor(make: Callable[[Tensor], Tensor]) -> Callable[[Message], object]:
        return change_array(lambda array: pack(make(unpack(array).clone())))

    def set_infinite(rows: Tensor) -> Tensor:
        rows[0, 1] = torch.inf
        return rows

    def remove_values(reply: Message) -> None:
        del reply.content[VALUES]

    def rename(reply: Message) -> None:
        reply.content.config_records[VALUES]["client"] = "0"

    def add_array(reply: Message) -> None:
        reply.content.array_records[ARRAYS]["more"] = pack(torch.ones(1))

    def remove_everything(reply: Message) -> None:
        for name in list(reply.content):
            del reply.content[name]

    return {
        "shape": (change_tensor(lambda rows: rows[:, 1:]), "shape (1, 27), expected (1, 28)"),
        "dtype": (change_tensor(lambda rows: rows.double()), "float64, expected float32"),
        "NaN": (change_tensor(lambda rows: rows * torch.nan), "infinite or NaN"),
        "infinity": (change_tensor(set_infinite), "infinite or NaN"),
        "pickle": (
            change_array(lambda old: Array(old.dtype, old.shape, "pickle", old.data)),
            "'pickle', expected",
        ),
        "too short": (
            change_array(lambda old: Array(old.dtype, old.shape, RAW, old.data[:-4])),
            "108 bytes, expected 112",
        ),
        "no values": (remove_values, "message has no values"),
        "another client's": (rename, "replied as client '0'"),
        "too many arrays": (add_array, "sent ['more', 'rows'], expected ['rows']"),
        "empty": (remove_everything, "message has no values"),
    }


@pytest.mark.parametrize("name", invalid_replies())
def test_an_invalid_reply_is_missing_with_its_reason(name: str) -> None:
    change, reason = invalid_replies()[name]
    grid = make_grid()
    federation = make_federation(grid)
    change_replies(grid, 5, "train.train", change)
    replies = federation.ask(train_request(federation.initial_model(0)))
    assert list(replies.missing) == [5]
    assert replies.values.isfinite().all()
    assert replies.clients.tolist() == [client for client in range(M) if client != 5]
    assert re.search(re.escape(reason), replies.missing[5])
    assert federation.missing == [MissingReply("5", "train", replies.missing[5])]


def test_a_long_reason_is_cut() -> None:
    grid = make_grid()
    federation = make_federation(grid)
    change_replies(
        grid,
        3,
        "train.train",
        lambda reply: reply.content.config_records[VALUES].update(client="y" * 10**4),
    )
    replies = federation.ask(train_request(federation.initial_model(0)))
    assert len(replies.missing[3]) == 500


def test_a_reply_to_no_message_is_dropped() -> None:
    grid = make_grid()
    federation = make_federation(grid, timeout=0.3)

    def misdirect(reply: Message) -> None:
        reply.metadata.__dict__["_reply_to_message_id"] = "x"

    change_replies(grid, 3, "train.train", misdirect)
    replies = federation.ask(train_request(federation.initial_model(0)))
    assert list(replies.missing) == [3]
    assert [reply.client for reply in federation.missing] == ["3"]


def test_a_busy_client_is_not_asked_until_it_has_replied() -> None:
    grid = make_grid()
    federation = make_federation(grid, timeout=0.3)
    w0 = federation.initial_model(0)
    grid.fault = no_reply("train.train", 2)
    replies = federation.ask(train_request(w0))
    assert replies.missing == {2: "no reply within 0.3 s"}
    grid.fault = no_fault
    before = len(grid.log)
    replies = federation.ask(train_request(w0, round=1))
    assert len(grid.log) - before == M - 1
    assert replies.missing == {2: "busy with an earlier request"}
    assert 2 not in federation.ready()
    [overdue] = [
        name
        for name, message in grid.sent.items()
        if message.metadata.dst_node_id == 3 and message.metadata.message_type == "train.train"
    ]
    grid.replies[overdue] = Message(make_content({}), reply_to=grid.sent[overdue])
    replies = federation.ask(train_request(w0, round=2))
    assert not replies.missing
    assert replies.values.isfinite().all()


def test_with_too_few_clients_a_run_pauses(flower_log: pytest.LogCaptureFixture) -> None:
    grid = make_grid()
    federation = make_federation(grid, min_clients=7)
    for partition in (1, 2):
        grid.leave(partition)
    polls = 0
    node_ids = grid.get_node_ids

    def join_later() -> list[int]:
        nonlocal polls
        polls += 1
        if polls == 4:
            grid.join(2)
        return node_ids()

    grid.get_node_ids = join_later  # type: ignore[method-assign]
    replies = federation.ask(train_request(federation.initial_model(0)))
    assert replies.missing == {1: "not connected"}
    waiting = "waiting for clients: 6 of at least 7 are ready; not connected, or busy: 1, 2"
    assert waiting in flower_log.text
    assert "continuing with 7 clients" in flower_log.text


def test_missing_replies_are_data() -> None:
    grid = make_grid()
    federation = make_federation(grid)
    grid.leave(3)
    w0 = federation.initial_model(0)
    complete = make_simulation().ask(Losses(EVERYONE, w0.unsqueeze(0)))
    replies = federation.ask(Losses(EVERYONE, w0.unsqueeze(0)))
    expected = complete.without([3], "not connected")
    assert replies.missing == expected.missing
    assert np.array_equal(replies.clients, expected.clients)
    assert torch.allclose(replies.values, expected.values, atol=1e-6)
    twice = federation.ask(Losses(np.array([3, 1, 3]), w0.unsqueeze(0)))
    assert twice.answered.tolist() == [False, True, False]
    assert twice.values.shape == (1, 1)
