from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from srfca import Global, Local, Simulation, Work, data
from srfca.errors import InputError
from srfca.methods import MOCHA
from srfca.methods.mocha import learned, multi_task, near, relationship, to_the_mean
from srfca.methods.run import Run
from srfca.models import linear, mlp
from tests import examples

WORK = Work(steps=6, local_steps=2, batch_size=None, lr=0.05)


def federation(sizes: list[int], d: int = 3) -> Simulation:
    made = examples.regression(sizes, d=d, clusters=2)
    return Simulation(made, examples.doubled(linear(d, bias=False)), validation=0)


def arrays(clients: Simulation, client: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = clients._samples["train"].of(client)
    return x.numpy(), y.numpy()


def exact(clients: Simulation, inverse: np.ndarray, coupling: float) -> np.ndarray:
    """Solve the joint linear system of all clients: ``[m, d]``."""
    m, d = len(clients.clients), clients.initial(0).shape[0]
    matrix, target = coupling * np.kron(inverse, np.eye(d)), np.zeros(m * d)
    for c in range(m):
        x, y = arrays(clients, c)
        here = slice(c * d, (c + 1) * d)
        matrix[here, here] += 2 / len(y) * x.T @ x
        target[here] = 2 / len(y) * x.T @ y
    return np.asarray(np.linalg.solve(matrix, target)).reshape(m, d)


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.reshape(targets.shape) - targets).square()


def relations(m: int, seed: int) -> np.ndarray:
    """A random Omega of trace m, with eigenvalues from 0.1 on."""
    root = np.random.default_rng(seed).normal(size=(m, m))
    omega = root @ root.T + 0.1 * np.eye(m)
    return np.asarray(omega * m / np.trace(omega))


@pytest.mark.parametrize("local_steps", [1, 5])
def test_a_fixed_relationship_ends_at_the_exact_solution(local_steps: int) -> None:
    clients = federation([20, 15, 2, 30])
    inverse = np.linalg.inv(relations(4, seed=0))

    def fixed(rows: Tensor) -> Tensor:
        return torch.tensor(inverse)

    method = MOCHA(work=replace(WORK, steps=600, lr=0.1, local_steps=local_steps), coupling=1.0)
    found = multi_task(method, Run(clients), fixed)
    np.testing.assert_allclose(found.numpy(), exact(clients, inverse, 1.0), atol=1e-4)


def test_the_mean_ends_at_the_exact_solution() -> None:
    clients = federation([20, 15, 2, 30])
    method = MOCHA(work=replace(WORK, steps=600, lr=0.1), coupling=1.0, relationship="mean")
    inverse = np.eye(4) - 1 / 4
    found = method.fit(clients).client_models
    np.testing.assert_allclose(found.numpy(), exact(clients, inverse, 1.0), atol=1e-4)


def test_the_learned_relationship_ends_where_both_steps_of_the_paper_agree() -> None:
    clients = federation([20, 15, 2, 30])
    found = MOCHA(work=replace(WORK, steps=600, lr=0.1), coupling=1.0).fit(clients).client_models
    inverse = learned(found).numpy()
    np.testing.assert_allclose(found.numpy(), exact(clients, inverse, 1.0), atol=1e-4)


def test_two_rounds_by_hand() -> None:
    clients = federation([6, 9])
    samples = [arrays(clients, c) for c in range(2)]
    w, z, u = np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 3))
    rho = 1 / (0.05 * 2)
    for _ in range(2):
        for c, (x, y) in enumerate(samples):
            for _ in range(2):
                slope = 2 / len(y) * x.T @ (x @ w[c] - y) + rho * (w[c] - (z[c] - u[c]))
                w[c] = w[c] - 0.05 * slope
        mean = (w + u).mean(0)
        z = mean + (w + u - mean) / (1 + 1.0 / rho)
        u = u + w - z
    method = MOCHA(work=replace(WORK, steps=4), coupling=1.0, relationship="mean")
    np.testing.assert_allclose(method.fit(clients).client_models.numpy(), z, rtol=1e-10)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 1000))
def test_omega_is_the_best_there_is(m: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(m, d))
    omega = relationship(torch.tensor(rows)).numpy()
    assert np.trace(omega) == pytest.approx(m)
    assert np.linalg.eigvalsh(omega).min() > 0
    cost = np.trace(rows.T @ np.linalg.inv(omega) @ rows)
    nuclear = np.linalg.svd(rows, compute_uv=False).sum() ** 2 / m
    assert nuclear - 1e-9 <= cost <= 1.02 * nuclear, "the least cost, up to the ridge of 1 %"
    other = np.linalg.inv(relations(m, seed))
    assert np.trace(rows.T @ other @ rows) >= nuclear - 1e-9


def test_nothing_learned_relates_nobody() -> None:
    torch.testing.assert_close(relationship(torch.zeros(3, 2)) / 0.01, torch.eye(3).double())


@given(st.integers(1, 5), st.floats(0.01, 10), st.integers(0, 1000))
def test_near_is_a_minimum(m: int, weight: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, inverse = rng.normal(size=(m, 2)), np.linalg.inv(relations(m, seed))
    z = near(torch.tensor(rows), torch.tensor(inverse), weight).numpy()
    np.testing.assert_allclose(z - rows + weight * inverse @ z, 0, atol=1e-7)


def test_to_the_mean_takes_the_mean_away() -> None:
    rows = torch.tensor([[1.0, 5.0], [2.0, 0.0], [6.0, 1.0]]).double()
    expected = torch.tensor([[-2.0, 3.0], [-1.0, -2.0], [3.0, -1.0]]).double()
    torch.testing.assert_close(to_the_mean(rows) @ rows, expected)


def test_related_tasks_of_few_samples_are_better_together() -> None:
    """The paper's claim. Two groups, 27 samples for 50 unknowns: neither alone nor as one."""
    made = data.synthetic(num_clients=20, samples=30, dimension=50, noise=0.1)
    clients = Simulation(made, linear(50, bias=False))
    work = Work(steps=280, local_steps=5, batch_size=None, lr=0.05)

    def loss(method: Local | Global | MOCHA) -> float:
        return float(method.fit(clients).scores(clients).loss.mean())

    alone, together = loss(Local(work=work)), loss(Global(work=work))
    assert loss(MOCHA(work=work)) < 0.5 * min(alone, together)
    assert loss(MOCHA(work=work, relationship="mean")) < 0.8 * min(alone, together)


def test_a_large_coupling_does_not_upset_the_rate() -> None:
    """lambda / the least eigenvalue of Omega is 10^5 here, and the rate 0.05."""
    clients = federation([20, 15, 2, 30])
    found = MOCHA(work=replace(WORK, steps=200), coupling=1000.0).fit(clients).client_models
    assert float(found.abs().max()) < 0.2


def test_some_may_stay_away_in_every_round() -> None:
    clients = federation([20, 15, 2, 30])
    work = replace(WORK, steps=1200, lr=0.1, local_steps=2)
    method = MOCHA(work=work, coupling=1.0, relationship="mean", participation=0.5)
    found = method.fit(clients).client_models.numpy()
    np.testing.assert_allclose(found, exact(clients, np.eye(4) - 1 / 4, 1.0), atol=1e-3)


def test_the_seed_decides_and_blocks_do_not() -> None:
    made, model = examples.regression([8, 5, 9, 12], clusters=2), examples.doubled(linear(4))
    method = MOCHA(work=replace(WORK, batch_size=3))
    found = method.fit(Simulation(made, model), seed=5).client_models
    torch.testing.assert_close(
        method.fit(Simulation(made, model, block_size=1), seed=5).client_models, found
    )
    assert not torch.allclose(method.fit(Simulation(made, model), seed=6).client_models, found)


@pytest.mark.parametrize("model", [linear(4), mlp(4, 5, 1)], ids=["linear", "mlp"])
def test_one_model_each_way_a_round(model: Callable[[], nn.Module]) -> None:
    made = examples.regression([8, 5, 9])
    result = MOCHA(work=WORK).fit(Simulation(made, model, loss=squared))
    spent = result.budget
    assert result.labels.tolist() == [0, 1, 2]
    assert not result.clustered
    assert spent.local_steps == 3 * 6
    assert spent.models_up == 3 * 3
    assert spent.models_down == 3 * 3, "their own models they have"


@pytest.mark.parametrize(
    ("name", "value"),
    [("coupling", 0.0), ("relationship", "clusters"), ("participation", 1.5)],
)
def test_bad_parameters_are_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        MOCHA(**{name: value})  # type: ignore[arg-type]


def test_divergence_is_named() -> None:
    with pytest.raises(InputError, match="training diverged for client '0'"):
        MOCHA(work=replace(WORK, steps=600, lr=20.0)).fit(federation([8, 5]))
