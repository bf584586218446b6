"""Who is sent whose model: with distances of rows no client ever gets another one's local model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from flwr.app import Message

from srfca import SRFCA
from srfca.flower.messages import RowTable
from srfca.flower.records import ARRAYS, ROWS, VALUES, arrays_of, row_name, unpack
from tests.flower.grid import LocalGrid
from tests.flower.setup import LOCAL, SR_FCA, M, make_grid, run_app


def watch(grid: LocalGrid) -> tuple[dict[str, set[int]], dict[str, set[int]], set[str]]:
    """Record the rows that clients train, and those that they are sent or asked about.

    Returns:
        Who has trained each row and who was sent it, by its name, and all message types.
    """
    trained: dict[str, set[int]] = {}
    sent: dict[str, set[int]] = {}
    kinds: set[str] = set()
    usual = grid.app

    def app(message: Message, context: Any) -> Message:
        partition = int(context.node_config["partition-id"])
        kinds.add(message.metadata.message_type)
        values: Mapping[str, Any] = message.content.config_records[VALUES]
        named = [n for key, names in values.items() if key.startswith("rows.") for n in names]
        arrays = message.content.array_records
        assert set(arrays) <= {ROWS}, "a client is sent rows and plain values only"
        for name, row in arrays_of(message.content, ROWS).items():
            assert name == row_name(row)
        for used in {*named, *arrays_of(message.content, ROWS)}:
            sent.setdefault(str(used), set()).add(partition)
        reply = usual(message, context)
        if message.metadata.message_type == "train.train":
            rows = RowTable()
            rows.add(unpack(reply.content.array_records[ARRAYS]["rows"]))
            for name in rows.rows:
                trained.setdefault(name, set()).add(partition)
        return reply

    grid.app = app
    return trained, sent, kinds


AUTO = SRFCA(local=LOCAL, refine_steps=1)
METHODS = {
    "fixed": SR_FCA,
    "auto": AUTO,
    "fine-tuned": replace(SR_FCA, fine_tune_steps=5, final_steps=4),
    "gradients": replace(SR_FCA, exchange="gradients"),
    "resampled": replace(SR_FCA, resample=True, refine_steps=2),
}


@pytest.mark.parametrize("distance", ["l2", "cosine"])
@pytest.mark.parametrize("name", METHODS)
def test_no_client_is_sent_the_local_model_of_another(name: str, distance: str) -> None:
    """Training, decisions, final models, newcomers and refreshes, over every message type."""
    grid = make_grid(range(M - 1), receive=lambda module, context: None)
    trained, sent, kinds = watch(grid)
    joined: list[int] = []

    def join_late(partition: int, message: Message) -> object:
        if message.metadata.message_type == "query.keep" and not joined:
            joined.append(grid.join(M - 1))
        return None

    grid.fault = join_late
    config = {"num-clients": M - 1, "serve": True, "serve-for": 0.3, "poll": 0.02, "refresh": 0.05}
    run_app(grid, config, method=replace(METHODS[name], distance=distance))
    assert joined
    assert {"train.train", "query.losses", "query.keep", "query.loss_moments"} <= kinds
    assert len(trained) > M
    for row, owners in trained.items():
        others = sent.get(row, set()) - owners
        assert not others, f"clients {others} were sent a local model of {owners}"


def test_the_model_of_a_client_that_is_alone_goes_to_no_other_client() -> None:
    grid = make_grid(receive=lambda module, context: None)
    trained, sent, kinds = watch(grid)
    alone = replace(SR_FCA, distance="l2", threshold=1e-6, merge_threshold=1e-6, min_size=1)
    run_app(grid, {"num-clients": M}, method=alone)
    assert "query.loss_moments" in kinds
    assert len(trained) > M
    for row, owners in trained.items():
        assert sent.get(row, set()) <= owners


def test_the_test_sees_local_models_where_they_are_sent() -> None:
    grid = make_grid()
    trained, sent, _ = watch(grid)
    run_app(grid, {"num-clients": M}, method=replace(SR_FCA, distance="cross_loss"))
    assert any(sent.get(row, set()) - owners for row, owners in trained.items())
