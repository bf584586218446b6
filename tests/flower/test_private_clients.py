"""Clients over Flower that clip what they send and add noise to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict

from srfca import SRFCA, InputError
from srfca.federation import Losses, LossMoments, Privacy, Scores
from srfca.flower import client_app
from srfca.flower.client_info import read_clients, write_clients
from srfca.flower.client_state import secret_of
from srfca.flower.records import ARRAYS, unpack
from srfca.flower.serving import serve
from srfca.flower.settings import Settings
from srfca.methods import IFCA, FedAvg, FedEM
from tests.flower.grid import LocalGrid
from tests.flower.setup import (
    EVERYONE,
    LOCAL,
    MODEL,
    SR_FCA,
    FreshProcess,
    M,
    load_data,
    make_federation,
    make_grid,
    make_simulation,
    train_request,
)

pytest.importorskip("dp_accounting")

PRIVACY = Privacy(clip_update=0.5, update_noise=0.01, clip_loss=3.0, loss_noise=0.01)
UPDATES = ("train.train", "train.gradients")


def releases(grid: LocalGrid) -> dict[str, np.ndarray]:
    """Count the messages that clients answer with updates, and with statistics."""
    counts = {"updates": np.zeros(M, np.int64), "statistics": np.zeros(M, np.int64)}
    usual = grid.app

    def app(message: Message, context: Any) -> Message:
        reply = usual(message, context)
        partition, kind = int(context.node_config["partition-id"]), message.metadata.message_type
        if ARRAYS in reply.content.array_records:
            arrays = reply.content.array_records[ARRAYS]
            if kind in UPDATES:
                counts["updates"][partition] += len(unpack(arrays["rows"]))
            elif arrays:
                counts["statistics"][partition] += len(arrays)
        return reply

    grid.app = app
    return counts


def private_grid(partitions: Any = range(M), **options: Any) -> LocalGrid:
    return make_grid(partitions, **{"privacy": PRIVACY, **options})


@pytest.mark.parametrize(
    "method",
    [
        replace(SR_FCA, distance="cross_loss"), SR_FCA, SRFCA(local=LOCAL, refine_steps=1),
        replace(SR_FCA, exchange="gradients", final_steps=4), FedAvg(local=LOCAL),
        IFCA(k=2, local=LOCAL, start="clients"), FedEM(k=2, local=LOCAL),
    ],
)  # fmt: skip
def test_a_run_says_at_least_what_its_clients_have_released(method: Any) -> None:
    """The accountant is at the server; the messages are counted where the clients are."""
    grid = private_grid()
    released = releases(grid)
    spent = method.fit(make_federation(grid), seed=1).privacy
    assert spent is not None
    assert spent.privacy == PRIVACY
    assert released["updates"].max() > 0
    assert spent.updates >= released["updates"].max()
    assert spent.statistics >= released["statistics"].max()


def test_updates_and_losses_are_bounded_at_the_client() -> None:
    exact = replace(PRIVACY, update_noise=0.0, loss_noise=0.0, clip_update=0.1, clip_loss=0.8)
    federation, simulation = make_federation(private_grid(privacy=exact)), make_simulation()
    w0 = federation.initial_model(0)
    changes = federation.ask(train_request(w0)).values - w0
    assert bool((changes.norm(dim=1) <= 0.1 * (1 + 1e-5)).all())
    losses = federation.ask(Losses(EVERYONE, w0.unsqueeze(0))).values
    clipped = simulation.ask(Losses(EVERYONE, w0.unsqueeze(0))).values.clamp(max=0.8)
    torch.testing.assert_close(losses, clipped)


def test_noise_is_of_a_secret_and_the_same_for_the_same_question() -> None:
    grid = LocalGrid(FreshProcess(privacy=PRIVACY), range(M))
    federation = make_federation(grid)
    w0 = federation.initial_model(0)
    rows, again = (federation.ask(train_request(w0)).values for _ in range(2))
    assert torch.equal(rows, again), "also in a new process"
    request = Scores(EVERYONE, w0.expand(M, -1), "test")
    assert torch.equal(*(federation.ask(request).values.loss for _ in range(2)))
    other = make_federation(private_grid()).ask(train_request(w0)).values
    assert not torch.equal(rows, other), "another run has other secrets"
    secrets = {secret_of(context.state) for context in grid.contexts.values()}
    assert len(secrets) == M
    state = RecordDict()
    assert secret_of(state) == secret_of(state) != secret_of(RecordDict())


def test_no_secret_is_sent() -> None:
    grid = private_grid()
    replies: list[bytes] = []
    usual = grid.app

    def app(message: Message, context: Any) -> Message:
        reply = usual(message, context)
        replies.append(str(reply.content).encode())
        return reply

    grid.app = app
    SR_FCA.fit(make_federation(grid), seed=1)
    for context in grid.contexts.values():
        secret = secret_of(context.state).encode()
        assert not any(secret in reply for reply in replies)


def test_what_has_no_bound_is_refused_by_the_server_and_by_the_client() -> None:
    grid = private_grid()
    federation = make_federation(grid)
    models = federation.initial_model(0).unsqueeze(0)
    before = len(grid.log)
    replies = federation.ask(LossMoments(EVERYONE, models, torch.ones(1), ("train",)))
    assert set(replies.missing) == set(range(M))
    assert len(grid.log) == before, "no message is sent"
    app = client_app(model=MODEL, data=load_data, device="cpu", privacy=PRIVACY)
    [message] = [m for m in grid.sent.values() if m.metadata.message_type == "query.hello"][:1]
    message.metadata.message_type = "query.subspaces"
    context = Context(
        run_id=1, node_id=1, node_config={"partition-id": 0}, state=RecordDict(), run_config={}
    )
    with pytest.raises(InputError, match="subspaces: private clients do not answer it"):
        app(message, context)


def test_the_majority_decides_how_private_clients_are() -> None:
    def app(message: Message, context: Any) -> Message:
        privacy = None if context.node_config["partition-id"] == 3 else PRIVACY
        reply: Message = FreshProcess(privacy=privacy)(message, context)
        return reply

    federation = make_federation(LocalGrid(app, range(M)), min_clients=4)
    assert "3" not in federation.client_ids
    assert federation.privacy == PRIVACY


def test_clients_that_do_not_agree_are_refused() -> None:
    def app(message: Message, context: Any) -> Message:
        privacy = PRIVACY if int(str(context.node_config["partition-id"])) % 2 else None
        reply: Message = FreshProcess(privacy=privacy)(message, context)
        return reply

    with pytest.raises(InputError, match="do not agree on their privacy"):
        SR_FCA.fit(make_federation(LocalGrid(app, range(M))))


def test_a_restarted_server_knows_how_private_its_clients_are(tmp_path: Any) -> None:
    federation = make_federation(private_grid())
    write_clients(tmp_path, federation.infos)
    assert {client.privacy for client in read_clients(tmp_path)} == {PRIVACY}


def test_private_clients_are_served_by_refreshes_alone() -> None:
    grid = private_grid(range(M - 1))
    federation = make_federation(grid, num_clients=M - 1)
    method = replace(SR_FCA, distance="cross_loss")
    result = method.fit(federation, seed=1)
    settings = Settings(num_clients=M - 1, poll=0.01, serve=True, serve_for=0.2)
    with pytest.raises(InputError, match=r"srfca\.drift-check must be 0"):
        serve(method, replace(settings, drift_check=1.0), federation, result)
    grid.join(M - 1)
    released = releases(grid)
    served = serve(method, settings, federation, result)
    assert len(served.labels) == M
    assert served.labels[-1] == -1
    assert not any(counts.any() for counts in released.values()), "what is not counted"
    refreshed = serve(method, replace(settings, refresh=0.05), federation, served)
    assert refreshed.labels[-1] >= 0
    assert refreshed.privacy is not None
    assert result.privacy is not None
    assert refreshed.privacy.updates > result.privacy.updates
