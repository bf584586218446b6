"""Requests: what they hold, and the part of one that concerns some clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import InputError
from srfca.federation import (
    BalancedLosses,
    BootstrapLosses,
    ClassCounts,
    Collect,
    Coordinates,
    DataMoments,
    Descent,
    Gradients,
    LocalTraining,
    Losses,
    LossMoments,
    Mixture,
    OutputMoments,
    Outputs,
    Personal,
    Phase,
    Posterior,
    Round,
    Scores,
    SharedSamples,
    Shares,
    Subsample,
    Subspaces,
    Train,
)
from srfca.random import Key
from tests.asking import positions

LOCAL = LocalTraining(steps=7, local_steps=3)
CLIENTS = positions([4, 1, 6])
ROWS = torch.arange(15.0).view(3, 5)
INDEX = np.array([2, 0])
MIXTURE = Mixture(ROWS[:2], torch.tensor([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]]))


def test_names_are_in_lower_case() -> None:
    requests = (Train, Gradients, Losses, Scores, Shares, Subspaces, Collect, Round)
    assert [request.__name__.lower() for request in requests] == [
        "train", "gradients", "losses", "scores", "shares", "subspaces", "collect", "round"
    ]  # fmt: skip
    assert LossMoments(CLIENTS, ROWS, torch.ones(3)).name == "lossmoments"
    assert OutputMoments(CLIENTS, ROWS).select(INDEX).clients.tolist() == [6, 4]
    assert BootstrapLosses(CLIENTS, ROWS).select(INDEX).clients.tolist() == [6, 4]
    assert DataMoments(CLIENTS).select(INDEX).clients.tolist() == [6, 4]
    assert Losses(CLIENTS, ROWS).name == "losses"


def test_any_integers_become_an_array_of_clients() -> None:
    for clients in (range(2), [0, 1], (0, 1), np.array([0, 1], dtype=np.int32)):
        request = Losses(clients, ROWS)  # type: ignore[arg-type]
        assert request.clients.dtype == np.int64
        assert request.clients.tolist() == [0, 1]


def test_the_steps_of_a_round() -> None:
    steps = [Train(CLIENTS, ROWS, LOCAL, Key(0, "x", number)).steps for number in range(3)]
    assert steps == [3, 3, 1]


def test_what_is_sent_and_what_is_kept() -> None:
    plain = Train(CLIENTS, ROWS, LOCAL, Key(0, "x"))
    assert plain.sent is None
    assert not plain.stateful
    personal = Train(CLIENTS, ROWS, LOCAL, Key(0, "x"), personal=Coordinates(((1, 3),)))
    assert personal.sent == Coordinates(((0, 1), (3, 5)))
    assert personal.stateful
    kept = LocalTraining(keep_state=True)
    assert Train(CLIENTS, ROWS, kept, Key(0, "x")).stateful


def test_a_training_of_some_clients() -> None:
    posterior = Posterior(MIXTURE, torch.tensor([0, 1, 1]))
    phases = (Phase(Coordinates(((0, 2),))),)
    algorithm = Descent(anchors=ROWS + 1, corrections=ROWS + 2, phases=phases, posterior=posterior)
    request = Train(CLIENTS, ROWS, LOCAL, Key(0, "x"), algorithm).select(INDEX)
    assert request.clients.tolist() == [6, 4]
    assert torch.equal(request.starts, ROWS[[2, 0]])
    part = request.algorithm
    assert isinstance(part, Descent)
    assert part.anchors is not None
    assert part.corrections is not None
    assert part.posterior is not None
    assert torch.equal(part.anchors, ROWS[[2, 0]] + 1)
    assert torch.equal(part.corrections, ROWS[[2, 0]] + 2)
    assert part.phases == phases
    assert part.posterior.component.tolist() == [1, 0]
    assert torch.equal(part.posterior.mixture.weights, MIXTURE.weights[[2, 0]])
    assert torch.equal(part.posterior.mixture.models, MIXTURE.models)


def test_other_requests_of_some_clients() -> None:
    assert torch.equal(Gradients(CLIENTS, ROWS).select(INDEX).models, ROWS[[2, 0]])
    losses = Losses(CLIENTS, ROWS[:2]).select(INDEX)
    assert losses.clients.tolist() == [6, 4]
    assert torch.equal(losses.models, ROWS[:2]), "every client evaluates every model"
    scores = Scores(CLIENTS, ROWS).select(INDEX).models
    assert isinstance(scores, torch.Tensor)
    assert torch.equal(scores, ROWS[[2, 0]])
    for mixed in (Scores(CLIENTS, MIXTURE).select(INDEX), Shares(CLIENTS, MIXTURE).select(INDEX)):
        assert isinstance(mixed.models, Mixture)
        assert torch.equal(mixed.models.weights, MIXTURE.weights[[2, 0]])
    shares = Shares(CLIENTS, ROWS[:2]).select(INDEX).models
    assert isinstance(shares, torch.Tensor)
    assert torch.equal(shares, ROWS[:2])
    assert ClassCounts(CLIENTS, presence=True).select(INDEX).presence
    balanced = BalancedLosses(CLIENTS, ROWS[:2], torch.ones(2, 4)).select(INDEX)
    assert balanced.clients.tolist() == [6, 4]
    assert balanced.models.shape == (2, 5)
    assert balanced.class_shares.shape == (2, 4)
    assert Subspaces(CLIENTS, 2).select(INDEX).clients.tolist() == [6, 4]
    assert SharedSamples(CLIENTS, 2).select(INDEX).clients.tolist() == [6, 4]
    outputs = Outputs(CLIENTS, ROWS, torch.ones(4, 2)).select(INDEX)
    assert torch.equal(outputs.models, ROWS[[2, 0]])
    assert outputs.inputs.shape == (4, 2)
    personal = Personal(Coordinates(((0, 1),)), 0, "x")
    assert Collect(CLIENTS, personal).select(INDEX).personal is personal


def test_a_round_of_some_participants() -> None:
    request = Round(CLIENTS, ROWS, positions([2, 0, 1]), LOCAL, Key(0, "x")).select(INDEX)
    assert request.clients.tolist() == [6, 4]
    assert request.labels.tolist() == [1, 2]
    assert torch.equal(request.models, ROWS)
    with pytest.raises(InputError, match="3 participants need as many labels, not 2"):
        Round(CLIENTS, ROWS, positions([0, 1]), LOCAL, Key(0, "x"))


def test_a_subsample_is_not_empty() -> None:
    with pytest.raises(InputError, match="subsample size must be at least 1, not 0"):
        Subsample(0)
