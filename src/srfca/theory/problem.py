"""Strongly convex problems whose constants are known, and SR-FCA on them in closed form.

The loss of a sample z is f(w, z) = 1/2 sum_k h_k (w_k - z_k)^2 with mu <= h_k <= L, and a sample is
its client's minimizer with +s or -s added to every coordinate. So f is mu-strongly convex and
L-smooth, its partial derivatives are at most L_k = h_k (D + s) on a ball of diameter D that
contains everything, and the population minimizer is known. Gradients are linear in the mean of a
client's samples: gradient descent and TrimmedMeanGD have closed forms, and the mean of n samples is
a binomial draw. Thousands of whole runs take seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from srfca.aggregation.functions import trimmed_mean
from srfca.clustering.graph import cluster_graph, threshold_graph
from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.theory.quantities import Separations, best_threshold, l2_distances, separations

Rows = NDArray[np.float64]
"""Points of the parameter space: ``[k, d]``."""


@dataclass(frozen=True, eq=False)
class Quadratics:
    """Clients with quadratic losses in clusters.

    Args:
        minimizers: w_i*, ``[m, d]``.
        truth: The true clusters.
        curvatures: h, ``[d]``.
        noise: s.

    Examples:
        >>> problem = Quadratics.make(clients=4, clusters=2, dimension=3)
        >>> problem.separations.eps1, round(problem.separations.eps2, 6)
        (0.0, 1.0)
        >>> problem.draw(samples=100, rng=np.random.default_rng(0)).shape
        (4, 3)
    """

    minimizers: Rows
    truth: Partition
    curvatures: NDArray[np.float64]
    noise: float

    @classmethod
    def make(
        cls,
        clients: int = 20,
        clusters: int = 2,
        dimension: int = 10,
        separation: float = 1.0,
        spread: float = 0.0,
        mu: float = 1.0,
        smoothness: float = 2.0,
        noise: float = 1.0,
    ) -> Quadratics:
        """Return clusters whose centers are all ``separation`` apart.

        Clients of a cluster are alternately ``spread / 2`` to each side of its center.

        Args:
            clients: m
            clusters: C
            dimension: d, more than the clusters.
            separation: Distance of two centers.
            spread: Distance of the two kinds of clients of a cluster.
            mu: The smallest curvature.
            smoothness: The largest curvature, L.
            noise: s

        Raises:
            InputError: If there are too few dimensions for the clusters.
        """
        require(dimension > clusters, f"{clusters} clusters need more than {dimension} dimensions")
        labels = np.arange(clients) % clusters
        minimizers = np.zeros((clients, dimension))
        minimizers[np.arange(clients), labels] = separation / np.sqrt(2)
        minimizers[:, clusters] = np.where(np.arange(clients) // clusters % 2, 1, -1) * spread / 2
        curvatures = np.linspace(mu, smoothness, dimension)
        return cls(minimizers, Partition(labels), curvatures, noise)

    @property
    def mu(self) -> float:
        """The constant of strong convexity."""
        return float(self.curvatures.min())

    @property
    def smoothness(self) -> float:
        """L."""
        return float(self.curvatures.max())

    @property
    def dimension(self) -> int:
        """D."""
        return len(self.curvatures)

    @property
    def diameter(self) -> float:
        """D, of a ball around w0 = 0 that contains all samples: projections change nothing."""
        reach = np.linalg.norm(np.abs(self.minimizers) + self.noise, axis=1).max()
        return 2 * float(reach)

    @property
    def lipschitz(self) -> float:
        """L_hat, the root of the sum of L_k^2."""
        return float(np.linalg.norm(self.curvatures * (self.diameter + self.noise)))

    @cached_property
    def separations(self) -> Separations:
        """eps1 and eps2 of the population minimizers."""
        return separations(l2_distances(self.minimizers), self.truth)

    @property
    def threshold(self) -> float:
        """Lambda = (eps1 + eps2) / 2."""
        return best_threshold(self.separations)

    def cluster_minimizers(self) -> Rows:
        """Return omega_c*, the population minimizer of each true cluster: ``[C, d]``."""
        return np.stack([self.minimizers[members].mean(0) for members in self.truth])

    def draw(self, samples: int, rng: np.random.Generator) -> Rows:
        """Draw the means of n samples of each client: ``[m, d]``.

        Args:
            samples: n
            rng: A generator of random numbers.

        Returns:
            ``[m, d]``
        """
        ups = rng.binomial(samples, 0.5, self.minimizers.shape)
        return self.minimizers + self.noise * (2 * ups / samples - 1)

    def descend(self, targets: Rows, steps: int) -> Rows:
        """Return T steps of gradient descent from w0 = 0 with eta = 1 / L.

        Args:
            targets: Minimizers of the empirical losses, ``[k, d]``.
            steps: T.

        Returns:
            ``[k, d]``
        """
        return targets * (1 - (1 - self.curvatures / self.smoothness) ** steps)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Clusters, and a model for each."""

    partition: Partition
    models: Rows


@dataclass(frozen=True)
class Settings:
    """Parameters of SR-FCA: lambda is that of the problem."""

    min_size: int = 2
    trim: float = 0.1
    steps: int = 100

    def one_shot(self, problem: Quadratics, means: Rows) -> Partition:
        """ONE_SHOT, with cliques, as in the theory."""
        local_models = problem.descend(means, self.steps)
        graph = threshold_graph(l2_distances(local_models), problem.threshold)
        return cluster_graph(graph, "cliques").drop_smaller_than(self.min_size)

    def train(self, problem: Quadratics, partition: Partition, means: Rows) -> Outcome:
        """TrimmedMeanGD: the trimmed mean of gradients h (w - z) is that of a mean z."""
        targets = [
            trimmed_mean(torch.from_numpy(means[members]), self.trim).numpy()
            for members in partition
        ]
        return Outcome(partition, problem.descend(np.stack(targets), self.steps))

    def refine(self, problem: Quadratics, partition: Partition, means: Rows) -> Outcome:
        """TrimmedMeanGD, RECLUSTER, MERGE; clients of removed clusters go to the nearest left."""
        models = self.train(problem, partition, means).models
        local_models = problem.descend(means, self.steps)
        sizes = np.bincount(cdist(local_models, models).argmin(1), minlength=len(models))
        models = models[sizes >= min(self.min_size, sizes.max())]
        graph = threshold_graph(l2_distances(models), problem.threshold)
        groups = list(cluster_graph(graph, "cliques"))
        merged = np.stack([models[group].mean(0) for group in groups])
        group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        group_of = group_of[np.argsort(np.concatenate(groups))]
        labels = group_of[cdist(local_models, models).argmin(1)]
        partition = Partition(labels)
        return Outcome(partition, merged[[int(labels[members[0]]) for members in partition]])


def ifca(problem: Quadratics, means: Rows, starts: Rows, rounds: int = 50) -> Partition:
    """Run IFCA with full gradients: each client goes to the model of least loss on its samples."""
    models = starts.copy()
    rate = problem.curvatures / problem.smoothness
    labels = np.zeros(len(means), dtype=np.int64)
    for _ in range(rounds):
        losses = ((means[:, None] - models) ** 2 * problem.curvatures).sum(2)
        labels = losses.argmin(1)
        for model in range(len(models)):
            members = labels == model
            if members.any():
                models[model] -= rate * (models[model] - means[members].mean(0))
    return Partition(labels)
