"""Warnings of doubtful numbers of clusters, and of trainings that failed."""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import log

import pytest
import torch
from torch import Tensor

from srfca import FedAvg, InputError, Local, LocalTraining, Simulation, SrfcaWarning
from srfca.federation import DropReplies
from srfca.methods import IFCA
from srfca.models import linear
from tests import examples

LOCAL = LocalTraining(steps=10, batch_size=None, lr=0.05)


def test_a_training_that_failed_is_reported() -> None:
    federation = Simulation(examples.classification([20] * 4), linear(6, 3))
    assert federation.constant_loss == pytest.approx(log(3))
    with pytest.warns(
        SrfcaWarning, match=r"training failed: Global ends with a loss of .* Lower lr"
    ):
        FedAvg(local=replace(LOCAL, lr=1e4)).fit(federation)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FedAvg(local=LOCAL).fit(federation)


def test_values_are_compared_with_their_variance() -> None:
    data = examples.regression([40] * 4)
    federation = Simulation(data, linear(4))
    train = federation._samples["train"].y.double()
    assert federation.constant_loss == pytest.approx(float(train.var(correction=0)))
    with pytest.warns(SrfcaWarning, match="training failed: Local"):
        Local(local=replace(LOCAL, lr=3.0)).fit(federation)


def tenfold_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return 1e6 * (outputs.squeeze(-1) - targets).square()


def test_no_sentence_without_the_loss_of_a_constant() -> None:
    data = examples.regression([20] * 3)
    users = Simulation(data, linear(4), loss=tenfold_error)
    assert users.constant_loss is None
    wrapped = DropReplies(Simulation(data, linear(4)), 0.0)
    unscored = Simulation(data, linear(4), validation=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FedAvg(local=replace(LOCAL, lr=1e-9)).fit(users)
        for federation in (wrapped, unscored):
            FedAvg(local=replace(LOCAL, lr=3.0)).fit(federation)
    equal = replace(data, train=replace(data.train, y=torch.ones_like(data.train.y)))
    assert Simulation(equal, linear(4)).constant_loss == 0


@pytest.mark.parametrize(("k", "m", "warned"), [(4, 4, False), (5, 9, True), (5, 10, False)])
def test_nearly_as_many_clusters_as_clients(k: int, m: int, warned: bool) -> None:
    federation = Simulation(examples.regression([20] * m), linear(4))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        IFCA(k=k, start="clients", local=LOCAL).fit(federation)
    messages = [str(warning.message) for warning in caught]
    expected = f"k={k} clusters of {m} clients have fewer than two clients on average"
    assert any(expected in message for message in messages) == warned
    with pytest.raises(InputError, match=f"k={m + 1} is more than the {m} clients"):
        IFCA(k=m + 1, start="clients", local=LOCAL).fit(federation)
