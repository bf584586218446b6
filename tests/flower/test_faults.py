"""Methods over Flower with clients that leave, fail, or send wrong numbers."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message

from srfca import SRFCA, FedAvg, InputError, Local, methods, models
from srfca.errors import SrfcaWarning
from srfca.federation import Losses
from srfca.flower import FlowerFederation
from srfca.methods import Method, Run
from tests.flower.setup import (
    DATA,
    EVERYONE,
    LOCAL,
    SR_FCA,
    M,
    change_replies,
    is_correct,
    make_federation,
    make_grid,
    make_simulation,
    no_fault,
    raising,
    scale,
)


@pytest.mark.parametrize("distance", ["cross_loss", "one_sided_loss", "l2"])
def test_a_client_that_fails_in_one_shot_is_placed_later(distance: str) -> None:
    grid = make_grid()
    federation = make_federation(grid)
    requests = []

    def fail_once(partition: int, message: Message) -> object:
        if partition != 3 or message.metadata.message_type != "train.train":
            return None
        requests.append(partition)
        return RuntimeError("out of luck") if len(requests) == 1 else None

    grid.fault = fail_once
    result = replace(SR_FCA, distance=distance).fit(federation, seed=1)
    assert result.partition == DATA.truth
    assert result.history[0].labels[3] == -1
    assert result.history[0].notes["missing"] == [
        {"client": "3", "request": "train", "reason": "error 2: out of luck"}
    ]
    assert all("missing" not in stage.notes for stage in result.history[1:])


@pytest.mark.parametrize("kind", ["train.train", "query.losses"])
@pytest.mark.parametrize("distance", ["cross_loss", "one_sided_loss", "l2"])
@pytest.mark.parametrize("all_pairs", [0, 1000])
def test_a_client_that_never_replies_does_not_affect_the_others(
    kind: str, distance: str, all_pairs: int
) -> None:
    grid = make_grid()
    federation = make_federation(grid)
    grid.fault = raising(kind, 3)
    threshold: dict[str, Any] = {"threshold": "45%", "merge_threshold": "auto"}
    method = SRFCA(local=LOCAL, distance=distance, all_pairs=all_pairs, **threshold, refine_steps=1)
    result = method.fit(federation, seed=1)
    rest = [client for client in range(M) if client != 3]
    assert is_correct(result.labels, rest)
    assert result.models.isfinite().all()
    scores = result.scores(federation)
    assert scores.loss[rest].isfinite().all()
    missing = [reply for stage in result.history for reply in stage.notes.get("missing", [])]
    assert {reply["client"] for reply in missing} == {"3"}


def test_a_client_that_leaves_keeps_its_cluster_or_has_none() -> None:
    grid = make_grid()
    federation = make_federation(grid)
    grid.leave(3)
    result = SR_FCA.fit(federation, seed=1)
    assert result.labels[3] == -1
    assert result.client_models[3].isnan().all()
    assert is_correct(result.labels, [0, 1, 2, 4, 5, 6, 7])
    assert result.scores(federation).loss.isnan().tolist() == [c == 3 for c in range(M)]
    assert {reply.reason for reply in federation.missing} == {"not connected"}

    grid = make_grid()
    federation = make_federation(grid)

    def leave_later(partition: int, message: Message) -> object:
        if len(grid.log) > 4 * M:
            grid.leave(3)
        return None

    grid.fault = leave_later
    result = SR_FCA.fit(federation, seed=1)
    assert result.partition == DATA.truth
    assert federation.missing


@pytest.mark.parametrize(
    "method",
    [
        methods.IFCA(k=2, start="clients", local=LOCAL),
        methods.IFCA(k=2, start="clients", local=LOCAL, restarts=2),
        methods.OneShotKMeans(k=2, local=LOCAL),
        methods.OneShotIFCA(local=LOCAL),
        FedAvg(local=LOCAL, fine_tune_steps=5),
        methods.Oracle(local=LOCAL, truth=DATA.truth),
        Local(local=LOCAL),
        methods.FedEM(k=2, local=LOCAL),
        methods.FedSoft(k=2, local=LOCAL),
        methods.Ditto(local=LOCAL),
        methods.MOCHA(local=LOCAL),
    ],
    ids=lambda method: method.name,
)
def test_a_method_continues_without_a_client_that_leaves(method: Method) -> None:
    grid = make_grid()
    federation = make_federation(grid)
    complete = method.fit(make_simulation(), seed=1)

    def leave_later(partition: int, message: Message) -> object:
        if len(grid.log) > 2 * M:
            grid.leave(6)
        return None

    grid.fault = leave_later
    result = method.fit(federation, seed=1)
    assert federation.missing
    rest = [client for client in range(M) if client != 6]
    assert result.client_models[rest].isfinite().all()
    loss = result.scores(federation).loss[rest]
    complete_loss = complete.scores(make_simulation()).loss[rest]
    assert loss.isfinite().all()
    assert float(loss.mean()) < 1.5 * float(complete_loss.mean())


@pytest.mark.parametrize(
    "method",
    [
        methods.CFL(local=LOCAL),
        methods.Hierarchical(local=LOCAL),
        methods.FedGroup(k=2, local=LOCAL),
        methods.FeSEM(k=2, local=LOCAL),
        methods.PACFL(local=LOCAL, rank=2, threshold=40.0),
        methods.IFCA(k=3, start="clients", local=LOCAL),
    ],
    ids=lambda method: method.name,
)
def test_a_method_runs_without_a_client_that_has_left(method: Method) -> None:
    grid = make_grid()
    federation = make_federation(grid)
    grid.leave(6)
    result = method.fit(federation)
    assert result.models.isfinite().all()
    assert [int(client) for client in np.flatnonzero(result.labels < 0)] in ([6], [])
    assert {reply.client for reply in federation.missing} == {"6"}


DEEP = models.mlp(6, 16, 16, 4)


@pytest.mark.parametrize("distance", ["cross_loss", "one_sided_loss"])
def test_a_huge_model_of_one_client_does_not_disturb_the_others(distance: str) -> None:
    grid = make_grid(model=DEEP)
    federation = FlowerFederation(grid, DEEP, num_clients=M)
    change_replies(grid, 5, "train.train", scale("rows", 1e13))
    method = SRFCA(local=LOCAL, distance=distance, threshold="45%", trim=0.3)
    result = method.fit(federation, seed=1)
    assert is_correct(result.labels, [client for client in range(M) if client != 5])
    assert not federation.missing


@pytest.mark.parametrize(
    ("method", "kind", "name", "factor"),
    [
        (SR_FCA, "query.losses", "losses", -torch.inf),
        (SR_FCA, "query.losses", "losses", -1e300),
        (SR_FCA, "query.losses", "validation", torch.nan),
        (SR_FCA, "query.losses", "validation", 2.0),
        (methods.FedEM(k=2, local=LOCAL), "query.shares", "shares", torch.inf),
        (methods.FedEM(k=2, local=LOCAL), "query.shares", "shares", -1.0),
    ],
)
def test_impossible_numbers_are_refused(
    method: Method, kind: str, name: str, factor: float
) -> None:
    grid = make_grid()
    federation = make_federation(grid)
    change_replies(grid, 5, kind, scale(name, factor))
    result = method.fit(federation, seed=1)
    assert {reply.client for reply in federation.missing} == {"5"}
    assert result.models.isfinite().all()
    if method is SR_FCA:
        assert is_correct(result.labels, [client for client in range(M) if client != 5])


def test_an_infinite_loss_is_valid() -> None:
    grid = make_grid()
    federation = make_federation(grid)
    change_replies(grid, 5, "query.losses", scale("losses", torch.inf))
    result = SR_FCA.fit(federation, seed=1)
    assert not federation.missing
    assert is_correct(result.labels, [client for client in range(M) if client != 5])
    assert result.loss_limits is not None
    assert all(tensor.isfinite().all() for tensor in result.loss_limits.tensors().values())


def test_a_training_without_any_reply_is_an_error(tmp_path: Path) -> None:
    grid = make_grid()
    grid.fault = raising("train.train", *range(M))
    with pytest.raises(InputError, match="none of 8 clients replied to train: error 2: out of"):
        FedAvg(local=LOCAL).fit(make_federation(grid), journal=tmp_path)
    grid.fault = no_fault
    again = FedAvg(local=LOCAL).fit(make_federation(grid), journal=tmp_path)
    assert not torch.equal(again.models[0], make_federation(grid).initial_model(0))
    diverging = replace(LOCAL, lr=3e38, momentum=0.9)
    with pytest.raises(InputError, match=r"infinite or NaN \(if training has diverged, lower lr"):
        FedAvg(local=diverging).fit(make_federation())


@pytest.mark.parametrize("allowed", [False, True])
def test_negative_losses_are_refused_unless_they_are_allowed(allowed: bool) -> None:
    grid = make_grid()
    change_replies(grid, 3, "query.losses", scale("losses", -1e-9))
    federation = make_federation(grid, negative_losses=allowed)
    run = Run(federation)
    with nullcontext() if allowed else pytest.warns(SrfcaWarning, match="a negative loss"):
        replies = run.ask(Losses(EVERYONE, run.initial_model().unsqueeze(0)))
    assert set(replies.missing) == (set() if allowed else {3})
