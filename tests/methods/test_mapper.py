"""MAPPER: rounds by hand, its limits, and its paper's claim in a small form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from srfca import FedAvg, InputError, Local, LocalTraining, Simulation
from srfca.methods import MAPPER
from srfca.models import linear
from srfca.testing import ReferenceFederation
from tests import examples
from tests.methods.helpers import DropByNumber
from tests.methods.test_ditto import loss, similar

LOCAL = LocalTraining(steps=8, local_steps=2, batch_size=None, lr=0.05)


def two_clients() -> Simulation:
    data = examples.regression([6, 18], d=3, clusters=2)
    return Simulation(data, examples.doubled(linear(3, bias=False)), validation=0)


def test_rounds_by_hand() -> None:
    """Steps are of h_i and of h themselves, though clients take those of the mix."""
    federation = two_clients()
    samples = [tuple(t.numpy() for t in federation._samples["train"].of(c)) for c in range(2)]

    def gradient(row: np.ndarray, client: int) -> np.ndarray:
        x, y = samples[client]
        return np.asarray(2 / len(y) * x.T @ (x @ row - y))

    def error(row: np.ndarray, client: int) -> float:
        x, y = samples[client]
        return float(((x @ row - y) ** 2).mean())

    h = np.zeros(3)
    individual, shares = [h, h], [0.0, 0.0]
    for number in range(4):
        sent = []
        if number >= 2:
            candidates, errors = list[list[np.ndarray]](), np.zeros((2, 3))
            for i in range(2):
                start = individual[i] if shares[i] > 0 else h
                candidates.append([start])
                errors[i, 0] = error(h, i)
                for place, share in ((1, 1 / 3), (2, 2 / 3)):
                    row = start
                    for _ in range(2):
                        row = row - 0.05 * share * gradient(share * row + (1 - share) * h, i)
                    errors[i, place] = error(share * row + (1 - share) * h, i)
                    candidates[i].append(row)
            best = (np.array([[6], [18]]) * errors + 20 * errors.mean(0)).argmin(1)
            individual = [rows[place] for rows, place in zip(candidates, best, strict=True)]
            shares = [place / 3 for place in best]
        for i in range(2):
            row, share = h, shares[i]
            for _ in range(2):
                row = row - 0.05 * (1 - share) * gradient(
                    share * individual[i] + (1 - share) * row, i
                )
            sent.append(row)
        h = (6 * sent[0] + 18 * sent[1]) / 24
    result = MAPPER(local=LOCAL, grid=3, warm_up=2).fit(federation)
    mixes = [s * row + (1 - s) * h for s, row in zip(shares, individual, strict=True)]
    assert max(shares) > 0
    assert result.history[-1].notes["lambda"] == pytest.approx(shares)
    np.testing.assert_allclose(result.models[0].numpy(), h, rtol=1e-10)
    np.testing.assert_allclose(result.client_models.numpy(), np.stack(mixes), rtol=1e-10)


def test_it_beats_one_model_and_local_models_on_similar_clients() -> None:
    """The paper's claim: a mix of both generalizes better than either."""
    federation = Simulation(similar(samples=16), linear(10, bias=False), validation=0.25)
    local = LocalTraining(steps=60, batch_size=None, lr=0.05)
    mixed = loss(MAPPER(local=local).fit(federation), federation)
    assert mixed < 0.95 * loss(FedAvg(local=local).fit(federation), federation)
    assert mixed < 0.95 * loss(Local(local=local).fit(federation), federation)


def test_alike_clients_stay_with_the_central_model() -> None:
    """Held-out data choose lambda: where h is right, an h_i of few samples is hardly used."""
    federation = Simulation(examples.regression([10] * 12, d=6), linear(6, bias=False))
    local = LocalTraining(steps=200, local_steps=5, batch_size=None, lr=0.05)
    result = MAPPER(local=local).fit(federation)
    assert loss(result, federation) < 2 * loss(FedAvg(local=local).fit(federation), federation)


def test_it_is_that_of_the_reference_loop() -> None:
    data, model = examples.regression([9, 11], d=3), examples.doubled(linear(3))
    method = MAPPER(local=replace(LOCAL, batch_size=5), warm_up=2, participation=0.5)
    result = method.fit(Simulation(data, model), seed=3)
    expected = method.fit(ReferenceFederation(data, model), seed=3)
    torch.testing.assert_close(result.client_models, expected.client_models, rtol=1e-9, atol=1e-9)


def test_the_budget_is_that_of_one_model_up_in_a_round() -> None:
    method = MAPPER(local=LOCAL, grid=3, warm_up=2)
    spent = method.fit(two_clients()).budget
    assert method.trainings == pytest.approx(2)
    assert spent.local_steps == 2 * (4 + 3 * 4)
    assert spent.models_up == 2 * 4
    assert spent.evaluations == 2 * 2 * 3


def test_a_client_whose_individual_models_are_missing_has_the_central_one() -> None:
    """Requests of a round: Scores of h, Train and Scores of each lambda, Train of h."""
    drops = {number: [1] for number in range(2, 60)}
    result = MAPPER(local=LOCAL, grid=2, warm_up=2).fit(DropByNumber(two_clients(), drops))
    assert result.history[-1].notes["lambda"][1] == 0
    torch.testing.assert_close(result.client_models[1], result.models[0])


def test_warm_up_must_leave_a_round() -> None:
    with pytest.raises(InputError, match="warm_up must be less than the 4 rounds, not 4"):
        MAPPER(local=LOCAL, warm_up=4)
