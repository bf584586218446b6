"""A client that says something else about its data than most others is not taken in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord

from srfca.flower.agreement import Agreement
from srfca.flower.client_info import ClientInfo
from srfca.flower.records import ARRAYS, VALUES, pack, unpack
from tests.flower.setup import (
    SR_FCA,
    M,
    change_replies,
    is_correct,
    make_federation,
    make_grid,
    train_request,
)

LIES: list[tuple[str, Any, str]] = [
    ("validation", 0, "it has no validation samples, but most clients do"),
    ("test", 0, "it has no test samples, but most clients do"),
    ("classes", False, "it has classes = False, but most clients have True"),
    ("features", 3, "it has features = 3, but most clients have 6"),
    ("outputs", 2**40, "it has outputs = "),
    ("groups", 5, "it has groups = 5"),
    ("columns", 2**40, "it has columns = "),
    ("num_classes", 3, "it has num_classes = 3"),
]


def say(key: str, value: Any) -> Any:
    """Return a change of an introduction."""

    def change(reply: Message) -> None:
        reply.content.config_records[VALUES][key] = value

    return change


@pytest.mark.parametrize(("key", "value", "reason"), LIES)
def test_one_client_that_lies_about_its_data_is_not_taken_in(
    key: str, value: Any, reason: str, flower_log: pytest.LogCaptureFixture
) -> None:
    grid = make_grid()
    change_replies(grid, 3, "query.hello", say(key, value))
    federation = make_federation(grid)
    assert federation.client_ids == ("0", "1", "2", "4", "5", "6", "7")
    assert f"client '3': {reason}" in flower_log.text
    assert federation.splits == ("train", "validation", "test")
    assert federation.newcomers() == []


def test_a_run_with_a_liar_has_the_clusters_and_accuracies_of_the_others() -> None:
    grid = make_grid()
    change_replies(grid, 3, "query.hello", say("classes", False))
    result = SR_FCA.fit(make_federation(grid), seed=1)
    labels = result.labels.tolist()
    labels.insert(3, -1)
    assert is_correct(torch.tensor(labels).numpy(), [0, 1, 2, 4, 5, 6, 7])
    assert result.history[-1].accuracy is not None


def test_a_client_that_comes_back_with_other_data_is_refused(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    grid = make_grid()
    federation = make_federation(grid)
    grid.leave(3)
    change_replies(grid, 3, "query.hello", say("features", 3))
    grid.join(3)
    replies = federation.ask(train_request(federation.initial_model(0)))
    assert replies.missing == {3: "not connected"}
    assert "client '3': it has features = 3, but most clients have 6" in flower_log.text


def test_what_no_majority_agrees_on_is_not_judged() -> None:
    clients = [ClientInfo(str(n), {"train": 5}, n, True, False) for n in range(4)]
    agreement = Agreement.of(clients)
    assert "features" not in agreement.traits
    assert not any(map(agreement.problem, clients))
    more = ClientInfo("x", {"train": 5, "validation": 5, "test": 1}, 1, True, False)
    assert not agreement.problem(more), "more data than the others is no problem"


def add_array(reply: Message) -> None:
    reply.content[ARRAYS] = ArrayRecord({"x": pack(torch.zeros(2**18))})


def add_metrics(reply: Message) -> None:
    reply.content["metrics"] = MetricRecord({"x": [0.0] * 2**14})


def add_text(reply: Message) -> None:
    reply.content["more"] = ConfigRecord({"x": "y" * 2**17})


@pytest.mark.parametrize(
    "change", [add_array, add_metrics, add_text, say("signature", "[" * 60000)]
)
def test_an_oversized_introduction_is_refused(
    change: Any, flower_log: pytest.LogCaptureFixture
) -> None:
    grid = make_grid()
    change_replies(grid, 3, "query.hello", change)
    federation = make_federation(grid, num_clients=M - 1)
    assert "3" not in federation.client_ids
    assert "at most 65536 are due" in flower_log.text or "does not describe" in flower_log.text


@pytest.mark.parametrize("change", [add_array, add_metrics, add_text])
def test_an_oversized_reply_is_refused_before_its_arrays_are_read(
    change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = make_grid()
    federation = make_federation(grid)
    change_replies(grid, 3, "train.train", change)
    read: list[int] = []

    def counting(array: Any, *spec: Any) -> Any:
        read.append(len(array.data))
        return unpack(array, *spec)

    monkeypatch.setattr("srfca.flower.messenger.unpack", counting)
    replies = federation.ask(train_request(federation.initial_model(0)))
    assert list(replies.missing) == [3]
    assert "bytes, at most 65680 are due" in replies.missing[3]
    assert max(read) == 28 * 4
