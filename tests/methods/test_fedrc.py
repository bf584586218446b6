"""FedRC: two rounds by hand, removed clusters, and its paper's claim in a small form."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from benchmarks.concepts import LOCAL, classifier, skewed_concepts
from torch import nn

from srfca import InputError, LocalTraining, Simulation
from srfca.methods import FedEM, FedRC, Run
from srfca.methods._common.init import random_models
from srfca.methods.fedrc import Responsibilities
from tests import examples
from tests.methods.helpers import Array, DropByNumber

RATE = 0.1
STEP = LocalTraining(steps=2, local_steps=1, batch_size=None, lr=RATE)


def tiny() -> Simulation:
    """Return logistic regressions of three inputs and two classes, at four clients."""
    made = examples.classification([12, 15, 9, 10], shape=(3,), classes=2)
    return Simulation(made, lambda: nn.Linear(3, 2).double(), validation=0)


def probabilities(row: Array, x: Array) -> Array:
    """Return the probabilities of a model's two classes: ``[n, 2]``."""
    scores = np.exp(x @ row[:6].reshape(2, 3).T + row[6:])
    return np.asarray(scores / scores.sum(1, keepdims=True))


def step(row: Array, x: Array, y: Array, weights: Array) -> Array:
    """Return a model after a step on the mean of the weighted losses."""
    errors = (probabilities(row, x) - np.eye(2)[y]) * weights[:, None] / len(y)
    return row - RATE * np.concatenate([(errors.T @ x).ravel(), errors.sum(0)])


@pytest.mark.parametrize("weighting", ["samples", "responsibilities"])
def test_two_rounds_by_hand(weighting: Literal["samples", "responsibilities"]) -> None:
    federation = tiny()
    theta = random_models(Run(federation, 3), 2, "fedrc start").numpy()
    pairs = [federation._samples["train"].of(client) for client in range(4)]
    samples = [(x.double().numpy(), y.numpy()) for x, y in pairs]
    sizes = np.array([len(y) for _, y in samples])

    def posteriors() -> list[Array]:
        """The E-step: ``[k, n]`` of each client."""
        odds = [
            np.stack([w[k] * probabilities(theta[k], x)[range(len(y)), y] / shares[k, y]
                      for k in range(2)])
            for w, (x, y) in zip(omega, samples, strict=True)
        ]  # fmt: skip
        return [odd / odd.sum(0) for odd in odds]

    omega, shares = np.full((4, 2), 0.5), np.ones((2, 2))
    for _ in range(2):
        gamma = posteriors()
        omega = np.stack([g.mean(1) for g in gamma])
        classes = [
            [g[:, y == c].sum(1) for c in range(2)]
            for g, (_, y) in zip(gamma, samples, strict=True)
        ]
        counts = np.sum(classes, axis=0).T
        shares = counts / counts.sum(1, keepdims=True)
        weights = sizes[:, None] * (omega if weighting == "responsibilities" else 1)
        rows = np.stack(
            [
                [step(theta[k], x, y, g[k]) for k in range(2)]
                for g, (x, y) in zip(gamma, samples, strict=True)
            ]
        )
        weights = np.broadcast_to(weights, (4, 2))
        theta = (weights[..., None] * rows).sum(0) / weights.sum(0)[:, None]
    last = np.stack([g.mean(1) for g in posteriors()])

    method = FedRC(max_clusters=2, remove_below=0, start="random", weighting=weighting, local=STEP)
    result = method.fit(federation, seed=3)
    order = [last[0].argmax(), 1 - last[0].argmax()]
    assert result.mixture_weights is not None
    np.testing.assert_allclose(result.mixture_weights.numpy(), last[:, order], rtol=1e-6)
    np.testing.assert_allclose(result.models.numpy(), theta[order], rtol=1e-6)


def test_small_clusters_are_removed_and_their_weight_is_shared() -> None:
    state = Responsibilities(
        torch.tensor([[0.90, 0.08, 0.02], [0.20, 0.79, 0.01], [0.0, 0.0, 1.0]]),
        torch.tensor([60.0, 39.0, 1.0]),
    )
    assert state.keep(0.01) == [0, 1, 2], "1.2 + 0.39 + 1 of 100 samples are in the last one"
    assert state.keep(0.05) == [0, 1]
    expected = torch.tensor([[0.90 / 0.98, 0.08 / 0.98], [0.20 / 0.99, 0.79 / 0.99], [0.5, 0.5]])
    torch.testing.assert_close(state.omega, expected)
    assert state.keep(0.99) == [0], "the largest one stays"


def test_concepts_are_found_where_other_concepts_have_the_same_classes() -> None:
    """The paper's claim, where it holds: ``benchmarks/concepts.py`` has other cases too."""
    exact = {"FedRC": 0, "FedEM": 0}
    for seed in range(6):
        federation = Simulation(skewed_concepts(seed, skew=0.9, shift=2), classifier)
        for method in (
            FedRC(max_clusters=2, start="random", local=LOCAL),
            FedEM(k=2, start="random", local=LOCAL),
        ):
            exact[method.name] += method.fit(federation, seed=seed).partition == (
                federation.data.truth
            )
    assert exact["FedRC"] == 6
    assert exact["FedEM"] < 6


def test_a_client_that_never_replies_has_equal_weights() -> None:
    federation = DropByNumber(tiny(), {number: [1] for number in range(99)})
    result = FedRC(max_clusters=2, start="random", local=STEP).fit(federation)
    assert result.models.isfinite().all()
    assert result.mixture_weights is not None
    assert result.mixture_weights[1].tolist() == [0.5, 0.5]


def test_there_are_at_least_two_clients_for_a_cluster() -> None:
    result = FedRC(remove_below=0, start="random", local=STEP).fit(tiny())
    assert len(result.models) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_clusters", 0), ("remove_below", 1.0), ("start", "best"), ("weighting", "x")],
)
def test_wrong_values_are_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        FedRC(**{name: value})
