"""Local and federated training: participants, rounds with missing replies, shared coordinates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from srfca import InputError, LocalTraining, Partition, Simulation
from srfca.aggregation import Mean
from srfca.federation import Coordinates, Losses, Round, ask
from srfca.federation.rounds import aggregate_clusters
from srfca.methods import Run
from srfca.methods._common.rounds import (
    argmin_loss,
    best_models,
    federated_training,
    num_participants,
    num_rounds,
    one_cluster,
    participants,
    require_clients,
    require_replies,
    resolve_server_lr,
    train_locally,
    trained_part,
)
from srfca.models import linear
from srfca.random import Key
from tests import examples
from tests.methods.helpers import DropByNumber, regressions, train

M = 8
DATA = examples.regression([20] * M, clusters=2)
KEY = Key(0, "test")
LOCAL = LocalTraining(steps=20, local_steps=5, batch_size=10, lr=0.05)


def dropping(drops: dict[int, list[int]]) -> DropByNumber:
    return DropByNumber(Simulation(DATA, linear(4), device="cpu"), drops)


def test_participants_are_a_fraction_of_every_cluster() -> None:
    federation = regressions()
    partition = Partition([0] * 7 + [1] * 4 + [-1])
    drawn = set()
    for number in range(30):
        chosen = participants(federation, partition, 0.5, Key(0, "x", number))
        counts = [(chosen < 7).sum(), ((chosen >= 7) & (chosen < 11)).sum(), (chosen == 11).sum()]
        assert counts == [4, 2, 0]
        assert (np.diff(chosen) > 0).all()
        drawn |= set(chosen.tolist())
    assert drawn == set(range(11))
    assert participants(federation, partition, 0.01, Key(0, "x")).size == 2, "at least one each"
    assert participants(federation, partition, 1.0, Key(0, "x")).tolist() == list(range(11))
    assert num_participants(partition, 0.5) == [4, 2]


def test_a_round_skips_missing_clients_and_a_cluster_without_replies_keeps_its_model() -> None:
    models = torch.arange(10.0).view(2, 5)
    labels = np.array([0, 0, 1, 1, 1, 1, 1, 1])
    rows = train(dropping({}), models[labels], range(M), LOCAL, KEY)
    request = Round(np.arange(M), models, labels, LOCAL, KEY, Mean(weighted=False))
    replies = ask(dropping({0: [0, 1, 3]}), request)
    assert torch.equal(replies.values[0], models[0])
    assert torch.equal(replies.values[1], rows[[2, 4, 5, 6, 7]].mean(0))
    assert replies.missing == dict.fromkeys([0, 1, 3], "dropped")


def test_rows_are_aggregated_by_cluster() -> None:
    rows = torch.tensor([[1.0], [2.0], [6.0]])
    sizes = torch.tensor([9, 1, 3, 1])
    models = torch.tensor([[0.0], [7.0], [0.0]])
    clients, labels = np.array([1, 2, 3]), np.array([2, 0, 2])
    weighted = aggregate_clusters(rows, clients, labels, models, sizes, Mean())
    assert weighted.tolist() == [[2.0], [7.0], [3.5]]


def test_shared_coordinates_are_of_all_clients_that_replied() -> None:
    """No client replies in the first cluster; the first two coordinates are shared by all."""
    models, labels = torch.arange(10.0).view(2, 5), np.array([0, 0, 1, 1, 1, 1, 1, 1])
    rows = train(dropping({}), models[labels], range(M), LOCAL, KEY)
    shared = Coordinates(((0, 2),))
    request = Round(np.arange(M), models, labels, LOCAL, KEY, Mean(weighted=False), shared=shared)
    result = ask(dropping({0: [0, 1, 3]}), request).values
    expected = rows[[2, 4, 5, 6, 7]].mean(0)
    assert torch.equal(result[:, :2], expected[:2].expand(2, -1))
    assert torch.equal(result[0, 2:], models[0, 2:])
    assert torch.equal(result[1, 2:], expected[2:])


def test_federated_training_is_its_rounds() -> None:
    federation = dropping({})
    run, partition = Run(federation), one_cluster(Run(federation))
    w0 = torch.zeros(1, 5)
    models = federated_training(
        run, "X", w0, partition, LOCAL, Mean(), purpose="x", project=lambda rows: 0.5 * rows
    )
    expected = w0
    for number in range(4):
        rows = train(federation, expected.expand(M, -1), range(M), LOCAL, Key(0, "x", number))
        expected = 0.5 * Mean()(rows, federation.sizes).unsqueeze(0)
    assert torch.equal(models, expected)
    first = federated_training(run, "X", w0, partition, LOCAL, Mean(), purpose="x", rounds=range(2))
    parts = federated_training(
        run, "X", first, partition, LOCAL, Mean(), purpose="x", rounds=range(2, 4)
    )
    assert torch.equal(
        parts, federated_training(run, "X", w0, partition, LOCAL, Mean(), purpose="x")
    )


def test_gradients_are_exchanged_at_every_step() -> None:
    assert num_rounds(LOCAL, None) == 4
    assert num_rounds(LOCAL, 0.1) == 20
    assert resolve_server_lr("models", 0.3, LOCAL) is None
    assert resolve_server_lr("gradients", 0.3, LOCAL) == 0.3
    assert resolve_server_lr("gradients", None, LOCAL) == 0.05


def test_local_models_of_missing_clients_are_the_initial_model() -> None:
    run = Run(dropping({0: [2, 5]}))
    models = train_locally(run, LOCAL, KEY)
    assert models.clients.tolist() == [0, 1, 3, 4, 6, 7]
    assert torch.equal(models.rows[[2, 5]], run.initial_model().expand(2, -1))
    complete = train_locally(Run(dropping({})), LOCAL, KEY)
    assert torch.equal(models.answered, complete.rows[models.clients])
    assert complete.answered is complete.rows
    starts, alone = torch.zeros(M, 5), replace(LOCAL, local_steps=20)
    assert torch.equal(complete.rows, train(dropping({}), starts, range(M), alone, KEY))


def test_the_best_model_is_of_the_clients_that_replied() -> None:
    models = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    clients, best = best_models(Run(dropping({0: [4]})), models, np.array([1, 4, 6]))
    assert clients.tolist() == [1, 6]
    values = dropping({}).ask(Losses(np.array([1, 6]), models)).values
    assert best.tolist() == values.argmin(1).tolist()


def test_a_loss_of_nan_counts_as_infinite() -> None:
    nan = torch.nan
    assert argmin_loss(torch.tensor([[nan, nan], [2.0, 1.0], [nan, 1.0]])).tolist() == [0, 1, 1]


def test_the_trained_part_has_no_buffers() -> None:
    federation = Simulation(examples.classification([20] * 2, (1, 6, 6)), examples.batch_normed)
    rows = federation.initial_model(0).expand(2, -1)
    trained = trained_part(Run(federation), rows)
    assert trained.shape[1] == sum(p.numel() for p in examples.batch_normed().parameters())
    assert trained.shape[1] < rows.shape[1]


def test_too_few_clients_or_replies_are_refused() -> None:
    require_clients(3, None)
    require_clients(3, 3)
    with pytest.raises(InputError, match="k=4 is more than the 3 clients"):
        require_clients(3, 4)
    require_replies(np.arange(2), 2)
    with pytest.raises(InputError, match="only 0 clients replied, but 1 or more are needed"):
        require_replies(np.arange(0))
