"""The closed forms of the quadratic problems, against loops and against SR-FCA itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from srfca import SRFCA, ClientData, InputError, LocalTraining, Simulation
from srfca.aggregation import trimmed_mean
from srfca.theory import Quadratics
from srfca.theory.problem import Settings, ifca

PROBLEM = Quadratics.make(clients=12, clusters=3, dimension=5, separation=2.0, spread=0.2)


def test_the_constants_are_those_of_the_problem() -> None:
    assert PROBLEM.separations.eps1 == pytest.approx(0.2)
    assert PROBLEM.separations.eps2 == pytest.approx(2.0)
    assert (PROBLEM.mu, PROBLEM.smoothness, PROBLEM.dimension) == (1.0, 2.0, 5)
    rng = np.random.default_rng(0)
    samples = np.concatenate([PROBLEM.draw(1, rng) for _ in range(50)])
    assert np.linalg.norm(samples, axis=1).max() <= PROBLEM.diameter / 2
    gradients = PROBLEM.curvatures * (samples - samples[::-1])
    assert np.linalg.norm(np.abs(gradients).max(0)) <= PROBLEM.lipschitz
    with pytest.raises(InputError, match="3 clusters need more than 3 dimensions"):
        Quadratics.make(clusters=3, dimension=3)


def test_means_of_samples_are_around_the_minimizers() -> None:
    rng = np.random.default_rng(1)
    draws = np.stack([PROBLEM.draw(4, rng) for _ in range(4000)])
    np.testing.assert_allclose(draws.mean(0), PROBLEM.minimizers, atol=0.05)
    np.testing.assert_allclose(draws.std(0), PROBLEM.noise / 2, atol=0.03)


def test_closed_forms_are_gradient_descent() -> None:
    means = PROBLEM.draw(20, np.random.default_rng(2))
    settings = Settings(trim=0.3, steps=7)
    w, omega = np.zeros_like(means), np.zeros((3, 5))
    for _ in range(7):
        w -= PROBLEM.curvatures * (w - means) / PROBLEM.smoothness
        for c, members in enumerate(PROBLEM.truth):
            gradients = PROBLEM.curvatures * (omega[c] - means[members])
            trimmed = trimmed_mean(torch.from_numpy(gradients), 0.3).numpy()
            omega[c] -= trimmed / PROBLEM.smoothness
    np.testing.assert_allclose(PROBLEM.descend(means, 7), w, atol=1e-12)
    trained = settings.train(PROBLEM, PROBLEM.truth, means)
    np.testing.assert_allclose(trained.models, omega, atol=1e-12)


class Point(nn.Module):
    """The distances of a point to samples, in the units of the losses."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(5, dtype=torch.float64))
        self.register_buffer("roots", torch.from_numpy(PROBLEM.curvatures).sqrt())

    def forward(self, z: Tensor) -> Tensor:
        return (self.w - z) * torch.as_tensor(self.roots)


@pytest.mark.parametrize("seed", range(3))
def test_the_whole_is_the_literal_algorithm(seed: int) -> None:
    """Each client has one sample: the mean of n."""
    means = PROBLEM.draw(6, np.random.default_rng(seed))
    steps, trim = 40, 0.25
    clients = [
        (torch.from_numpy(row).unsqueeze(0), torch.zeros(1, 5, dtype=torch.float64))
        for row in means
    ]
    federation = Simulation(
        ClientData.from_arrays(clients), Point, validation=0.0,
        loss=lambda outputs, targets: ((outputs - targets) ** 2).sum(1) / 2,
    )  # fmt: skip
    local = LocalTraining(steps=steps, local_steps=1, batch_size=None, lr=1 / PROBLEM.smoothness)
    literal = SRFCA.as_in_paper(
        PROBLEM.threshold, trim=trim, distance="l2", graph="cliques", exchange="gradients",
        local=local,
    )  # fmt: skip
    settings = Settings(trim=trim, steps=steps)
    result = literal.fit(federation)
    partition = settings.one_shot(PROBLEM, means)
    assert result.history[0].partition == partition
    outcome = settings.refine(PROBLEM, partition, means)
    assert result.partition == outcome.partition
    np.testing.assert_allclose(result.models[:, :5].numpy(), outcome.models, atol=1e-9)


def test_ifca_finds_the_clusters_from_good_starts() -> None:
    means = PROBLEM.draw(400, np.random.default_rng(3))
    assert ifca(PROBLEM, means, PROBLEM.cluster_minimizers()) == PROBLEM.truth
    far = PROBLEM.cluster_minimizers()
    far[2] = 100.0
    assert ifca(PROBLEM, means, far).num_clusters == 2, "an empty cluster stays empty"
