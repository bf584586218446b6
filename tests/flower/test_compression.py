"""Compressed updates over Flower: what travels, where residuals are, and codes that are wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Message

from srfca import FedAvg
from srfca.federation import Train
from srfca.federation.compression import num_words
from srfca.flower.records import ARRAYS, pack
from srfca.methods import FedEM, FedPer, Method
from srfca.models import mlp
from srfca.random import Key
from tests.flower.setup import (
    EVERYONE,
    LOCAL,
    FreshProcess,
    M,
    change_replies,
    make_federation,
    make_grid,
    make_simulation,
)

MODEL = mlp(6, 5, 4)
COMPRESSED = replace(LOCAL, compress=0.1)


@pytest.mark.parametrize(
    "method",
    [
        FedAvg(local=COMPRESSED),
        FedAvg(local=replace(COMPRESSED, keep_state=True, momentum=0.5)),
        FedPer(local=COMPRESSED),
        FedEM(k=2, local=COMPRESSED),
    ],
    ids=["FedAvg", "kept state", "personal layers", "several models of a client"],
)
def test_it_is_that_of_a_simulation(method: Method) -> None:
    """Each message starts a new process: residuals are in Flower's context."""
    grid = make_grid(model=MODEL)
    grid.app = FreshProcess(model=MODEL)
    result = method.fit(make_federation(grid, model=MODEL), seed=1)
    expected = method.fit(make_simulation(MODEL), seed=1)
    torch.testing.assert_close(result.models, expected.models, atol=1e-5, rtol=1e-4)
    assert result.budget == expected.budget


def test_codes_travel_instead_of_rows() -> None:
    model = mlp(6, 200, 4)
    sent = {}
    for compress in (None, 0.01):
        federation = make_federation(make_grid(model=model), model=model)
        starts = federation.initial_model(0).expand(M, -1)
        request = Train(EVERYONE, starts, replace(LOCAL, compress=compress), Key(0, "x"))
        sent[compress] = federation.ask(request).traffic.bytes_up
        length = starts.shape[1]
    saved = M * (4 * length - 8 * num_words(length, 0.01))
    assert sent[None] - sent[0.01] == pytest.approx(saved, abs=200 * M)
    assert sent[0.01] < sent[None] / 5, "introductions and names included"


def test_a_client_that_sends_nonsense_does_not_count() -> None:
    grid = make_grid(model=MODEL)
    federation = make_federation(grid, model=MODEL)
    starts = federation.initial_model(0).expand(M, -1)
    words = num_words(starts.shape[1], 0.1)

    def nonsense(reply: Message) -> None:
        codes = pack(torch.full((1, words), -1, dtype=torch.int64))
        reply.content[ARRAYS] = ArrayRecord({"compressed": codes})

    change_replies(grid, 3, "train.train", nonsense)
    replies = federation.ask(Train(EVERYONE, starts, COMPRESSED, Key(0, "x")))
    assert list(replies.missing) == [3]
    assert "not the code of an update" in replies.missing[3]
    assert replies.values.shape == (M - 1, starts.shape[1])
    expected = make_simulation(MODEL).ask(
        Train(np.delete(EVERYONE, 3), starts[1:], COMPRESSED, Key(0, "x"))
    )
    torch.testing.assert_close(replies.values, expected.values)
