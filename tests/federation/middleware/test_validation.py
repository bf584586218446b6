"""Impossible replies of single clients are refused, and sizes are capped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from srfca import InputError, Simulation
from srfca.errors import SrfcaWarning
from srfca.federation import (
    BalancedLosses,
    ClassCounts,
    ClientScores,
    Gradients,
    Losses,
    LossMoments,
    Middleware,
    Replies,
    Request,
    Scores,
    Shares,
    Train,
)
from srfca.federation.local_training import LocalTraining
from srfca.federation.middleware import Validating
from srfca.federation.replies import T
from srfca.models import mlp
from srfca.random import Key
from tests import examples
from tests.asking import positions

SIMULATION = Simulation(examples.classification([20] * 5), mlp(6, 5, 3))
W0 = SIMULATION.initial_model(0)
EVERYONE = positions(range(5))
REQUESTS: dict[str, Request[Any]] = {
    "train": Train(EVERYONE, W0.expand(5, -1), LocalTraining(steps=2), Key(0, "x")),
    "gradients": Gradients(EVERYONE, W0.expand(5, -1)),
    "losses": Losses(EVERYONE, W0.expand(2, -1), "validation"),
    "scores": Scores(EVERYONE, W0.expand(5, -1), "validation"),
    "counts": ClassCounts(EVERYONE),
    "balanced": BalancedLosses(EVERYONE, W0.expand(2, -1), torch.full((2, 3), 1 / 3)),
    "moments": LossMoments(EVERYONE, W0.expand(2, -1), torch.ones(2).double()),
    "shares": Shares(EVERYONE, W0.expand(2, -1)),
}

Edit = Callable[[Any], None]


class Edited(Middleware):
    """Change some values of the replies.

    Args:
        edit: What changes the values, in place.
    """

    def __init__(self, edit: Edit) -> None:
        super().__init__(SIMULATION)
        self.edit = edit

    def ask(self, request: Request[Any]) -> Replies[Any]:
        replies = self.federation.ask(request)
        self.edit(replies.values)
        return replies


def put(value: float, clients: Any = 2) -> Edit:
    def edit(values: Any) -> None:
        (values.loss if isinstance(values, ClientScores) else values)[clients] = value

    return edit


def put_accuracy(scores: ClientScores) -> None:
    assert scores.accuracy is not None
    scores.accuracy[2] = 1.5


BAD: dict[str, tuple[str, Edit, str]] = {
    "a NaN row": ("train", put(torch.nan), "infinite or NaN"),
    "an infinite gradient": ("gradients", put(torch.inf), "infinite or NaN"),
    "a negative loss": ("losses", put(-1e-9), "a negative loss"),
    "a negative score": ("scores", put(-1e-9), "a negative loss"),
    "an accuracy above 1": ("scores", put_accuracy, "not between 0 and 1"),
    "a negative count": ("counts", put(-1), "a negative loss or count"),
    "a negative balanced loss": ("balanced", put(-1.0), "a negative loss or count"),
    "a negative moment": ("moments", put(-1.0), "a negative loss"),
    "a share above 1": ("shares", put(2.0), "not between 0 and 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_impossible_replies_are_missing_replies(name: str) -> None:
    kind, edit, reason = BAD[name]
    federation = Validating(Edited(edit))
    with pytest.warns(SrfcaWarning, match=f"client '2': .*{reason}"):
        replies = federation.ask(REQUESTS[kind])
    assert replies.clients.tolist() == [0, 1, 3, 4]
    assert list(replies.missing) == [2]
    assert replies.missing[2].startswith("refused: ")
    assert len(replies.values) == 4
    assert federation.ask(REQUESTS[kind]).missing, "without another warning"


@pytest.mark.parametrize("kind", REQUESTS)
def test_valid_replies_are_passed_on(kind: str) -> None:
    received: list[Any] = []
    replies = Validating(Edited(received.append)).ask(REQUESTS[kind])
    assert not replies.missing
    assert replies.values is received[0], "without a copy"


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_a_loss_may_be_infinite_or_unknown(value: float) -> None:
    assert not Validating(Edited(put(value))).ask(REQUESTS["losses"]).missing


def test_what_most_clients_do_is_not_refused() -> None:
    diverged = Validating(Edited(put(torch.nan, [0, 1, 2]))).ask(REQUESTS["train"])
    assert not diverged.missing
    with pytest.raises(InputError, match=r"those of 3 of 5 clients are.*negative_losses=True"):
        Validating(Edited(put(-1.0, [0, 1, 2]))).ask(REQUESTS["losses"])


def test_losses_may_be_negative_if_the_federation_says_so() -> None:
    declared = Simulation(examples.classification([20] * 5), mlp(6, 5, 3), negative_losses=True)
    edited = Edited(put(-1.0))
    edited.federation = declared
    assert not Validating(edited).ask(REQUESTS["losses"]).missing


def test_a_reply_of_a_wrong_shape_is_an_error() -> None:
    class Narrow(Middleware):
        def ask(self, request: Request[Any]) -> Replies[Any]:
            replies: Replies[Any] = self.federation.ask(request)
            return Replies(replies.requested, replies.values[:, :-1])

    for kind in ("train", "gradients", "losses", "balanced"):
        with pytest.raises(InputError, match=r"of shape .* is due"):
            Validating(Narrow(SIMULATION)).ask(REQUESTS[kind])


def test_sizes_are_capped() -> None:
    class Large(Middleware):
        sizes = torch.tensor([10, 2**62, 12, 30, -5])

    assert Validating(Large(SIMULATION)).sizes.tolist() == [10, 48, 12, 30, 0]
    assert torch.equal(Validating(SIMULATION).sizes, SIMULATION.sizes)


@pytest.mark.filterwarnings("ignore:refused a reply")
@pytest.mark.parametrize("count", [2**62, 50])
def test_counts_of_more_samples_than_a_client_has_are_refused(count: int) -> None:
    class Boasting(Middleware):
        def ask(self, request: Request[T]) -> Replies[T]:
            replies = self.federation.ask(request)
            values = replies.values.clone()  # type: ignore[attr-defined]
            values[replies.clients == 2] = count
            values[replies.clients == 3] = -1
            return replace(replies, values=values)

    simulation = Simulation(examples.classification([20] * 5), mlp(6, 5, 3))
    valid = Validating(Boasting(simulation))
    replies = valid.ask(ClassCounts(np.arange(5)))
    assert "class counts of more samples" in replies.missing[2]
    assert "a negative loss or count" in replies.missing[3]
    honest = simulation.ask(ClassCounts(np.array([0, 1, 4]))).values
    assert torch.equal(replies.values, honest)
