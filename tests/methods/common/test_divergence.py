"""One diverged model is refused, those of most clients are an error."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from srfca import SRFCA, FedAvg, InputError, Simulation
from srfca.errors import SrfcaWarning
from srfca.federation import (
    LocalTraining,
    Losses,
    Middleware,
    Replies,
    Request,
    Round,
    Train,
)
from srfca.methods._common.run import Run
from srfca.models import linear
from srfca.random import Key
from tests import examples
from tests.asking import positions

DATA = examples.regression([20] * 6, clusters=2)
LOCAL = LocalTraining(steps=6, local_steps=2, batch_size=5, lr=0.05)
EVERYONE = positions(range(6))


class MissingThenDiverged(Middleware):
    """Client 2 does not reply to one request; in all trainings after it, its model is NaN.

    Args:
        kind: The request that it does not reply to: the first of this kind.
        diverges: Whether its later models are NaN.
    """

    def __init__(self, kind: type[Request[Any]], diverges: bool = True) -> None:
        super().__init__(Simulation(DATA, linear(4)))
        self.kind, self.diverges, self.dropped = kind, diverges, False

    def ask(self, request: Request[Any]) -> Replies[Any]:
        replies = super().ask(request)
        if not self.dropped:
            self.dropped = isinstance(request, self.kind)
            return replies.without([2], "asleep") if self.dropped else replies
        if isinstance(request, Train) and self.diverges:
            replies.values[replies.clients == 2] = torch.nan
        return replies


def starts_of(run: Run) -> torch.Tensor:
    return run.initial_model().expand(6, -1)


@pytest.mark.parametrize("kind", [Train, Losses])
def test_training_refuses_a_client_that_was_missing_before(kind: type[Request[Any]]) -> None:
    run = Run(MissingThenDiverged(kind))
    if kind is Train:
        first = run.train(Train(EVERYONE, starts_of(run), LOCAL, Key(0, "x")))
    else:
        first = run.ask(Losses(EVERYONE, starts_of(run)[:1]))
    assert first.missing == {2: "asleep"}
    with pytest.warns(SrfcaWarning, match="client '2': a model or gradient that is infinite"):
        second = run.train(Train(EVERYONE, starts_of(run), LOCAL, Key(0, "x", 1)))
    assert second.missing[2].startswith("refused: ")


def test_a_round_goes_without_a_diverged_client() -> None:
    run = Run(MissingThenDiverged(Train))
    models = starts_of(run)[:2]
    labels = positions([0, 0, 1, 1, 1, 0])
    run.round(Round(EVERYONE, models, labels, LOCAL, Key(0, "x")))
    with pytest.warns(SrfcaWarning, match="client '2'"):
        trained = run.round(Round(EVERYONE, models, labels, LOCAL, Key(0, "x", 1)))
    assert trained.isfinite().all()


def test_a_missing_reply_alone_is_no_error() -> None:
    run = Run(MissingThenDiverged(Train, diverges=False))
    for number in range(2):
        run.train(Train(EVERYONE, starts_of(run), LOCAL, Key(0, "x", number)))
    assert [reply.client for reply in run.federation.missing] == ["2"]


def test_several_diverged_clients_are_counted() -> None:
    class FourDiverge(Middleware):
        def ask(self, request: Request[Any]) -> Replies[Any]:
            replies = super().ask(request)
            replies.values[[1, 2, 4, 5]] = torch.inf
            return replies

    run = Run(FourDiverge(Simulation(DATA, linear(4))))
    with pytest.raises(InputError, match="tuning diverged for client '1' and 3 more"):
        run.train(Train(EVERYONE, starts_of(run), LOCAL, Key(0, "x")), activity="tuning")


@pytest.mark.parametrize(
    ("method", "kind"),
    [(FedAvg(local=LOCAL), Train), (SRFCA(local=LOCAL, threshold="40%", trim=0), Losses)],
    ids=["FedAvg", "SR-FCA"],
)
def test_methods_go_without_a_diverged_client(
    method: FedAvg | SRFCA, kind: type[Request[Any]]
) -> None:
    with pytest.warns(SrfcaWarning, match="refused a reply of client '2'"):
        result = method.fit(MissingThenDiverged(kind))
    assert result.models.isfinite().all()
    method.fit(MissingThenDiverged(kind, diverges=False))
