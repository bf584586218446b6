"""KT-pFL: a round by hand, who teaches whom, and its paper's claim in a small form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import Local, LocalTraining, Simulation
from srfca.federation import SharedSamples, Train
from srfca.federation.algorithms.shared_data import Distillation
from srfca.methods import KTpFL
from srfca.methods.kt_pfl import Teachers
from srfca.models import linear
from srfca.random import Key
from srfca.testing import ReferenceFederation
from tests import examples
from tests.methods.helpers import Array, DropByNumber, digits

LOCAL = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.05)


def on_simplex(values: Array) -> Array:
    """Return the nearest point of the simplex, by bisection of the shift."""
    low, high = values.min() - 1, values.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(values - middle, 0).sum() > 1 else (low, middle)
    return np.asarray(np.maximum(values - low, 0))


def test_two_rounds_by_hand() -> None:
    made = examples.regression([6, 9, 7], d=3, clusters=2)
    federation = Simulation(made, examples.doubled(linear(3, bias=False)), validation=0)
    inputs = federation.ask(SharedSamples(np.arange(3), 2, 0, targets=False)).values.flatten(0, 1)
    pool = inputs.numpy()
    samples = [tuple(t.numpy() for t in federation._samples["train"].of(c)) for c in range(3)]

    def descend(row: Array, x: Array, y: Array, steps: int) -> Array:
        for _ in range(steps):
            row = row - 0.05 * 2 / len(y) * x.T @ (x @ row - y)
        return row

    rows, c = [np.zeros(3)] * 3, np.full((3, 3), 1 / 3)
    for _ in range(2):
        rows = [descend(row, x, y, 2) for row, (x, y) in zip(rows, samples, strict=True)]
        s = np.stack([pool @ row for row in rows])
        for i in range(3):
            errors = s[i] - c[i] @ s
            gradient = -2 * s @ errors / len(pool) + 2 * 0.1 * (c[i] - 1 / 3)
            c[i] = on_simplex(c[i] - 0.01 * gradient)
        taught = c @ s
        rows = [descend(row, pool, target, 2) for row, target in zip(rows, taught, strict=True)]
    method = KTpFL(local=LOCAL, shared=2, coefficient_lr=0.01)
    result = method.fit(federation)
    np.testing.assert_allclose(result.history[-1].notes["coefficients"], c, atol=1e-10)
    np.testing.assert_allclose(result.client_models.numpy(), np.stack(rows), rtol=1e-8)


def test_the_softmax_of_the_authors_by_hand() -> None:
    predictions = np.array([[[1.0], [2.0]], [[0.0], [4.0]]])
    teachers = Teachers(2, "softmax")
    teachers.hear(np.arange(2), torch.tensor(predictions))
    teachers.learn(np.arange(2), lr=0.1, rho=0.7)
    s = predictions[..., 0]
    c = np.full(2, 0.5)
    gradient = 2 * s @ (c @ s - s[1]) / 2
    powers = np.exp(5 * (c - 0.1 * gradient))
    np.testing.assert_allclose(teachers.coefficients[1].numpy(), powers / powers.sum())


def test_a_temperature_softens_predictions_and_gradients() -> None:
    """One step of a linear model towards what the only client says itself: it does not move."""
    made, model = examples.classification([9]), linear(6, 3)
    local = LocalTraining(steps=1, local_steps=1, batch_size=None, lr=0.1)
    alone = Local(local=local).fit(Simulation(made, model))
    result = KTpFL(local=local, temperature=5.0).fit(Simulation(made, model))
    torch.testing.assert_close(result.client_models, alone.client_models)


def test_a_step_of_distillation_at_a_temperature_by_hand() -> None:
    """The gradient by the outputs z is T (softmax(z / T) - targets)."""
    made, model = examples.classification([4]), examples.doubled(linear(6, 3, bias=False))
    federation = Simulation(made, model, validation=0)
    w = torch.linspace(-1, 1, 18).double()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 6, generator=generator).double()
    targets = torch.rand(4, 3, generator=generator).double().softmax(1)
    teaching = Distillation(inputs=x[None], targets=targets[None], temperature=5.0)
    local = LocalTraining(steps=1, local_steps=1, batch_size=None, lr=0.1)
    request = Train(np.array([0]), w[None], local, Key(0, "distillation"), teaching)
    weights, powers = w.view(3, 6), np.exp((x @ w.view(3, 6).T / 5).numpy())
    errors = torch.as_tensor(powers / powers.sum(1, keepdims=True)) - targets
    expected = weights - 0.1 * 5 * errors.T @ x / 4
    torch.testing.assert_close(federation.ask(request).values.view(3, 6), expected)


def test_clients_learn_from_those_of_their_group_and_better_than_alone() -> None:
    """The paper's claim: the coefficients find whom to learn from, and no model is sent."""
    federation = digits(num_clients=16, rotations=2)
    local = LocalTraining(steps=100, local_steps=5, batch_size=10, lr=0.5)
    result = KTpFL(local=local, shared=10).fit(federation)
    coefficients = np.array(result.history[-1].notes["coefficients"])
    truth = federation.data.truth
    assert truth is not None
    same = truth.labels[:, None] == truth.labels
    assert (coefficients * same).sum(1).mean() > 0.8
    accuracy = {
        name: result_of.scores(federation).accuracy.mean()
        for name, result_of in {
            "kt-pfl": result,
            "alone": Local(local=local).fit(federation),
            "mean": KTpFL(local=local, shared=10, coefficient_lr=0.0).fit(federation),
        }.items()
    }
    assert accuracy["kt-pfl"] > accuracy["alone"] + 0.02
    assert accuracy["kt-pfl"] > accuracy["mean"]
    assert result.budget.models_up == 0


def test_the_coefficients_stay_weights_of_sum_one_over_those_that_were_heard() -> None:
    teachers = Teachers(4)
    teachers.hear(np.array([0, 2]), torch.rand(2, 5, 3).double())
    teachers.learn(np.array([0, 2]), lr=0.5, rho=0.1)
    rows = teachers.coefficients[[0, 2]]
    assert rows[:, [1, 3]].eq(0).all()
    torch.testing.assert_close(rows.sum(1), torch.ones(2).double())
    assert teachers.targets(np.array([0, 2])).shape == (2, 5, 3)


@pytest.mark.parametrize("temperature", [1.0, 5.0])
def test_it_is_that_of_the_reference_loop(temperature: float) -> None:
    data, model = examples.classification([9, 11, 8]), linear(6, 3)
    local = LocalTraining(steps=6, local_steps=2, batch_size=4, lr=0.1)
    method = KTpFL(local=local, shared=3, participation=0.7, temperature=temperature)
    result = method.fit(Simulation(data, model), seed=3)
    expected = method.fit(ReferenceFederation(data, model), seed=3)
    torch.testing.assert_close(result.client_models, expected.client_models, rtol=1e-4, atol=1e-5)


def test_missing_predictions_teach_no_client() -> None:
    """Requests of a round: Train, Outputs, Train; the first request is for shared samples."""
    made = examples.regression([6, 9, 7], d=3)
    drops = {number: [1] for number in range(2, 60, 3)}
    federation = DropByNumber(Simulation(made, linear(3), validation=0), drops)
    result = KTpFL(local=LOCAL, shared=2).fit(federation)
    coefficients = np.array(result.history[-1].notes["coefficients"])
    assert coefficients[[0, 2], 1] == pytest.approx(0)
    assert result.client_models.isfinite().all()
