"""MOCHA: against the exact solution of the joint problem, by hand, and its paper's claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from srfca import FedAvg, InputError, Local, LocalTraining, Method, Simulation, data
from srfca.methods import MOCHA, Run
from srfca.methods.mocha import (
    capped_shares,
    clustered_coupling,
    learned_coupling,
    mean_coupling,
    multi_task,
    proximal_step,
    relationship,
)
from srfca.models import linear, mlp
from tests import examples

LOCAL = LocalTraining(steps=6, local_steps=2, batch_size=None, lr=0.05)


def regressions(sizes: list[int], d: int = 3) -> Simulation:
    made = examples.regression(sizes, d=d, clusters=2)
    return Simulation(made, examples.doubled(linear(d, bias=False)), validation=0)


def arrays(federation: Simulation, client: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = federation._samples["train"].of(client)
    return x.numpy(), y.numpy()


def exact(federation: Simulation, inverse: np.ndarray, mu: float) -> np.ndarray:
    """Solve the joint linear system of all clients: ``[m, d]``."""
    m, d = len(federation.client_ids), federation.initial_model(0).shape[0]
    matrix, target = mu * np.kron(inverse, np.eye(d)), np.zeros(m * d)
    for c in range(m):
        x, y = arrays(federation, c)
        block = slice(c * d, (c + 1) * d)
        matrix[block, block] += 2 / len(y) * x.T @ x
        target[block] = 2 / len(y) * x.T @ y
    return np.asarray(np.linalg.solve(matrix, target)).reshape(m, d)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.reshape(targets.shape) - targets).square()


def random_relationship(m: int, seed: int) -> np.ndarray:
    """Return a random Omega of trace m, with eigenvalues from 0.1 on."""
    root = np.random.default_rng(seed).normal(size=(m, m))
    omega = root @ root.T + 0.1 * np.eye(m)
    return np.asarray(omega * m / np.trace(omega))


@pytest.mark.parametrize("local_steps", [1, 5])
def test_a_fixed_relationship_ends_at_the_exact_solution(local_steps: int) -> None:
    federation = regressions([20, 15, 2, 30])
    inverse = np.linalg.inv(random_relationship(4, seed=0))

    def fixed_coupling(rows: Tensor) -> Tensor:
        return torch.tensor(inverse)

    local = replace(LOCAL, steps=600, lr=0.1, local_steps=local_steps)
    rows = multi_task(Run(federation), MOCHA(local=local, mu=1.0), fixed_coupling)
    np.testing.assert_allclose(rows.numpy(), exact(federation, inverse, 1.0), atol=1e-4)


def test_the_mean_ends_at_the_exact_solution() -> None:
    federation = regressions([20, 15, 2, 30])
    method = MOCHA(local=replace(LOCAL, steps=600, lr=0.1), mu=1.0, relationship="mean")
    rows = method.fit(federation).client_models
    expected = exact(federation, np.eye(4) - 1 / 4, 1.0)
    np.testing.assert_allclose(rows.numpy(), expected, atol=1e-4)


def test_the_learned_relationship_ends_where_both_steps_of_the_paper_agree() -> None:
    federation = regressions([20, 15, 2, 30])
    rows = MOCHA(local=replace(LOCAL, steps=600, lr=0.1), mu=1.0).fit(federation).client_models
    inverse = learned_coupling(rows).numpy()
    np.testing.assert_allclose(rows.numpy(), exact(federation, inverse, 1.0), atol=1e-4)


def test_two_rounds_by_hand() -> None:
    federation = regressions([6, 9])
    samples = [arrays(federation, c) for c in range(2)]
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
    method = MOCHA(local=replace(LOCAL, steps=4), mu=1.0, relationship="mean")
    np.testing.assert_allclose(method.fit(federation).client_models.numpy(), z, rtol=1e-10)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 1000))
def test_omega_minimizes_the_cost(m: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(m, d))
    omega = relationship(torch.tensor(rows)).numpy()
    assert np.trace(omega) == pytest.approx(m)
    assert np.linalg.eigvalsh(omega).min() > 0
    cost = np.trace(rows.T @ np.linalg.inv(omega) @ rows)
    nuclear = np.linalg.svd(rows, compute_uv=False).sum() ** 2 / m
    assert nuclear - 1e-9 <= cost <= 1.02 * nuclear, "the minimum, up to the ridge of 1 %"
    other = np.linalg.inv(random_relationship(m, seed))
    assert np.trace(rows.T @ other @ rows) >= nuclear - 1e-9


def test_clients_that_learned_nothing_are_not_related() -> None:
    torch.testing.assert_close(relationship(torch.zeros(3, 2)) / 0.01, torch.eye(3).double())


@given(st.integers(1, 5), st.floats(0.01, 10), st.integers(0, 1000))
def test_the_proximal_step_is_a_minimum(m: int, weight: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, inverse = rng.normal(size=(m, 2)), np.linalg.inv(random_relationship(m, seed))
    z = proximal_step(torch.tensor(rows), torch.tensor(inverse), weight).numpy()
    np.testing.assert_allclose(z - rows + weight * inverse @ z, 0, atol=1e-7)


def test_mean_coupling_subtracts_the_mean() -> None:
    rows = torch.tensor([[1.0, 5.0], [2.0, 0.0], [6.0, 1.0]]).double()
    expected = torch.tensor([[-2.0, 3.0], [-1.0, -2.0], [3.0, -1.0]]).double()
    torch.testing.assert_close(mean_coupling(rows) @ rows, expected)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10**6))
def test_the_clustered_relationship_is_the_best_below_the_identity(
    m: int, k: int, seed: int
) -> None:
    """Against random eigenvalues in [0, 1] of the same sum."""
    rng, total = np.random.default_rng(seed), min(k, m)
    sizes = rng.exponential(size=m)
    shares = capped_shares(torch.tensor(sizes), total).numpy()
    assert shares.sum() == pytest.approx(total)
    assert shares.min() > 0
    assert shares.max() <= 1 + 1e-12
    for _ in range(20):
        other = rng.dirichlet(np.ones(m)) * total
        if other.max() <= 1:
            assert (sizes**2 / shares).sum() <= (sizes**2 / other).sum() * (1 + 1e-9)


def test_clustered_costs_least_for_k_groups() -> None:
    groups = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    inverse = clustered_coupling(groups, 2)
    cost = torch.trace(groups.double().T @ inverse @ groups.double())
    assert float(cost) == pytest.approx(float(groups.square().sum()) / 2, rel=0.02), "k / m"
    apart = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 2.0, 1.0], [0.0, 2.0, -1.0]])
    spread = torch.trace(apart.double().T @ clustered_coupling(apart, 2) @ apart.double())
    assert float(spread) > 0.6 * float(apart.square().sum())


def test_clustered_tasks_are_better_together() -> None:
    made = data.synthetic(num_clients=12, samples=30, dimension=40, noise=0.1)
    federation = Simulation(made, linear(40, bias=False))
    local = LocalTraining(steps=150, local_steps=5, batch_size=None, lr=0.05)
    clustered = MOCHA(local=local, relationship="clustered", k=2).fit(federation)
    alone = Local(local=local).fit(federation).scores(federation).loss.mean()
    assert float(clustered.scores(federation).loss.mean()) < 0.5 * float(alone)
    for options in ({"k": 2}, {"relationship": "clustered"}):
        with pytest.raises(InputError, match="k is for relationship='clustered', which needs it"):
            MOCHA(**options)


def test_related_tasks_of_few_samples_are_better_together() -> None:
    """The paper's claim. Two groups, 27 samples for 50 unknowns: neither alone nor as one."""
    made = data.synthetic(num_clients=20, samples=30, dimension=50, noise=0.1)
    federation = Simulation(made, linear(50, bias=False))
    local = LocalTraining(steps=280, local_steps=5, batch_size=None, lr=0.05)

    def loss(method: Method) -> float:
        return float(method.fit(federation).scores(federation).loss.mean())

    alone, together = loss(Local(local=local)), loss(FedAvg(local=local))
    assert loss(MOCHA(local=local)) < 0.5 * min(alone, together)
    assert loss(MOCHA(local=local, relationship="mean")) < 0.8 * min(alone, together)


def test_a_large_mu_does_not_need_a_small_learning_rate() -> None:
    """mu divided by the smallest eigenvalue of Omega is 10^5 here, and the rate 0.05."""
    federation = regressions([20, 15, 2, 30])
    rows = MOCHA(local=replace(LOCAL, steps=200), mu=1000.0).fit(federation).client_models
    assert float(rows.abs().max()) < 0.2


def test_it_converges_if_only_half_of_the_clients_take_part_in_a_round() -> None:
    federation = regressions([20, 15, 2, 30])
    local = replace(LOCAL, steps=1200, lr=0.1, local_steps=2)
    method = MOCHA(local=local, mu=1.0, relationship="mean", participation=0.5)
    rows = method.fit(federation).client_models.numpy()
    np.testing.assert_allclose(rows, exact(federation, np.eye(4) - 1 / 4, 1.0), atol=1e-3)


def test_the_seed_decides_and_blocks_do_not() -> None:
    made, model = examples.regression([8, 5, 9, 12], clusters=2), examples.doubled(linear(4))
    method = MOCHA(local=replace(LOCAL, batch_size=3))
    rows = method.fit(Simulation(made, model), seed=5).client_models
    torch.testing.assert_close(
        method.fit(Simulation(made, model, block_size=1), seed=5).client_models, rows
    )
    assert not torch.allclose(method.fit(Simulation(made, model), seed=6).client_models, rows)


@pytest.mark.parametrize("model", [linear(4), mlp(4, 5, 1)], ids=["linear", "mlp"])
def test_one_model_each_way_a_round(model: Callable[[], nn.Module]) -> None:
    made = examples.regression([8, 5, 9])
    result = MOCHA(local=LOCAL).fit(Simulation(made, model, loss=squared_error))
    spent = result.budget
    assert result.labels.tolist() == [0, 1, 2]
    assert not result.clustered
    assert spent.local_steps == 3 * 6
    assert spent.models_up == 3 * 3
    assert spent.models_down == 3 * 3, "clients have their own models"


@pytest.mark.parametrize(
    ("name", "value"),
    [("mu", 0.0), ("relationship", "clusters"), ("k", 0), ("participation", 1.5)],
)
def test_wrong_values_are_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        MOCHA(**{name: value})


def test_divergence_names_the_client() -> None:
    with pytest.raises(InputError, match="training diverged for client '0'"):
        MOCHA(local=replace(LOCAL, steps=600, lr=20.0)).fit(regressions([8, 5]))
