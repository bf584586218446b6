"""FedDrift: clients leave a model whose loss rises, and clusters with alike models are merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.clustering.linkage import agglomerate
from srfca.clustering.partition import Labels, Partition
from srfca.errors import require
from srfca.federation.requests import Losses, Scores
from srfca.federation.rounds import aggregate_clusters
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.init import train_from_start
from srfca.methods._common.rounds import argmin_loss, federated_training
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.registry import register
from srfca.parameters import constrained

Array = NDArray[np.float64]

EXCESS = 1.5
"""``delta`` by default, as a multiple of what models of one client lose more on held-out data."""


@register
@dataclass(frozen=True, kw_only=True)
class FedDrift(Method):
    """Start from one model; clients that it does not fit leave it, and alike clusters are merged.

    Args:
        delta: A loss that rises by more than this is a drift; clusters are merged if each one's
            model loses no more than this on the data of the other. None is 1.5 times what a model
            that a client trains alone loses more on the client's held-out data than on its training
            data, on average: about what it loses on the data of a client like it.
        time_steps: The rounds of ``local`` are cut into this many time steps. At the start of each
            but the first, drifts are detected and clusters are merged.
        eager: All clients that drift in a time step make one new cluster (FedDrift-Eager); else
            each makes one.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of each cluster's clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> FedDrift(delta=0.5, local=local).fit(federation).labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1]
    """

    key: ClassVar[str] = "feddrift"
    name: ClassVar[str] = "FedDrift"
    paper: ClassVar[str] = (
        "Jothimurugesan, Hsieh, Wang, Joshi, Gibbons: Federated Learning under Distributed Concept "
        "Drift. AISTATS 2023."
    )
    server_settings: ClassVar[tuple[str, ...]] = ("server_momentum",)
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "delta": Range(0.02, 5.0, log=True),
        "time_steps": Range(2, 20, integer=True),
    }

    delta: float | None = constrained(None, at_least=0)
    time_steps: int = constrained(10, at_least=2)
    eager: bool = False
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    @property
    def resolved(self) -> Mapping[str, float]:
        """Where the search for ``delta`` begins, which the data choose by default."""
        return {"delta": 1.0}

    @property
    def spans(self) -> list[range]:
        """The rounds of each time step; fewer time steps if there are fewer rounds."""
        rounds = self.local.rounds
        parts = np.array_split(np.arange(rounds), min(self.time_steps, rounds))
        return [range(int(part[0]), int(part[-1]) + 1) for part in parts]

    @property
    def alone_steps(self) -> int:
        """Local steps of the first time step, for which each client also trains alone."""
        if len(self.spans) == 1:
            return 0
        return sum(len(self.local.span(number)) for number in self.spans[0])

    @property
    def trainings(self) -> float:
        """That in the clusters, and one time step alone."""
        return self.participation + self.alone_steps / self.local.steps

    def solve(self, run: Run) -> Answer:
        """In each time step: detect drifts, merge clusters, train."""
        answer = Answer(np.zeros(run.num_clients, np.int64), run.initial_model().unsqueeze(0))
        alone, reference, method = run.initial_model(), np.full(run.num_clients, np.inf), self
        if self.alone_steps:
            alone, reference = self.train_alone(run)
            method = self.with_delta(run, alone, reference)
        return method.train_clusters(run, answer, alone, reference)

    def with_delta(self, run: Run, alone: Tensor, reference: Array) -> FedDrift:
        """Return the method with a number for ``delta``.

        Args:
            run: The run.
            alone: ``[m, P]`` models that clients trained alone.
            reference: ``[m]`` their training losses.

        Raises:
            InputError: If ``delta`` is None and there are no held-out data.
        """
        if self.delta is not None:
            return self
        require(
            "validation" in run.federation.splits,
            "FedDrift chooses delta by held-out data, but this federation has no validation split: "
            "set delta",
        )
        replies = run.ask(Scores(run.everyone, alone, "validation"))
        excess = replies.values.loss.cpu().double().numpy() - reference[replies.clients]
        known = excess[np.isfinite(excess)]
        return replace(self, delta=max(0.0, EXCESS * float(known.mean())) if len(known) else 0.0)

    def train_clusters(
        self, run: Run, answer: Answer, alone: Tensor, reference: Array, *, new_data: bool = False
    ) -> Answer:
        """Train through all time steps.

        Args:
            run: The run.
            answer: The clusters to start from.
            alone: ``[m, P]`` the model of each client that leaves its cluster.
            reference: ``[m]`` the loss of each client before, infinite if unknown.
            new_data: Whether the data may have changed since, so that drifts are detected in the
                first time step too.

        Returns:
            The clusters at the end, and a model for each.
        """
        for step, span in enumerate(self.spans):
            name, notes = f"TIME STEP {step + 1}", dict[str, Any]()
            if step or new_data:
                answer, drifted, reference = self._detect(run, answer, alone, reference)
                before = len(answer.models)
                answer = self._merge(run, answer)
                notes = {
                    "drifted": drifted, "clusters_before_merging": before, "delta": self.delta,
                }  # fmt: skip
            partition = Partition(answer.labels)
            models = federated_training(
                run, name, answer.models, partition, self.local, Mean(self.weighted),
                purpose="feddrift", participation=self.participation, rounds=span,
            )  # fmt: skip
            answer = Answer(answer.labels, models)
            run.record(name, partition, answer.client_models, notes=notes)
        return answer

    def train_alone(self, run: Run) -> tuple[Tensor, Array]:
        """Train each client alone for a time step: its model ``[m, P]``, and its loss ``[m]``.

        The loss of a client that does not reply is infinite: it does not drift.

        Args:
            run: The run.

        Returns:
            Models ``[m, P]``, and losses ``[m]``.
        """
        with run.stage("ALONE", run.num_clients * self.alone_steps):
            replies = train_from_start(
                run, run.everyone, self.local, self.alone_steps, "feddrift alone"
            )
            alone = replies.fill(run.initial_model().expand(run.num_clients, -1))
            scores = run.ask(Scores(replies.clients, replies.values, "train"))
        reference = np.full(run.num_clients, np.inf)
        reference[scores.clients] = scores.values.loss.cpu().double().numpy()
        return alone, reference

    def _detect(
        self, run: Run, answer: Answer, alone: Tensor, reference: Array
    ) -> tuple[Answer, int, Array]:
        """Let each client choose the model of least loss, or leave all of them if it drifts.

        Returns:
            The clusters, the number of clients that drifted, and the losses to compare with in the
            next time step.
        """
        replies = run.ask(Losses(run.everyone, answer.models))
        clients, labels = replies.clients, answer.labels.copy()
        least = replies.values.cpu().double().nan_to_num(nan=torch.inf).min(1).values.numpy()
        labels[clients] = argmin_loss(replies.values)
        assert self.delta is not None
        has_drifted = least > reference[clients] + self.delta
        drifted = clients[has_drifted]
        after = reference.copy()
        after[clients] = np.where(has_drifted, reference[clients], least)
        if not len(drifted):
            return Answer.canonical(labels, answer.models), 0, after
        k, rows = len(answer.models), alone[torch.as_tensor(drifted)]
        labels[drifted] = k if self.eager else k + np.arange(len(drifted))
        if self.eager:
            rows = aggregate_clusters(
                rows, drifted, 0 * drifted, rows[:1], run.sizes, Mean(self.weighted)
            )
        models = torch.cat([answer.models, rows.to(answer.models)])
        return Answer.canonical(labels, models), len(drifted), after

    def _merge(self, run: Run, answer: Answer) -> Answer:
        """Merge clusters by complete linkage, up to delta; models are averaged."""
        if len(answer.models) < 2:
            return answer
        replies = run.ask(Losses(run.everyone, answer.models))
        labels, sizes = answer.labels, run.sizes.cpu().double().numpy()
        losses = replies.values.cpu().double().numpy()
        distances = cluster_distances(losses, labels[replies.clients], sizes[replies.clients])
        assert self.delta is not None
        groups = agglomerate(distances, threshold=self.delta, linkage="complete").partition
        counts = np.bincount(labels, sizes if self.weighted else None, minlength=len(answer.models))
        weights = torch.as_tensor(groups.membership() * counts)
        weights = weights / weights.sum(1, keepdim=True)
        models = weights.to(answer.models) @ answer.models
        return Answer.canonical(groups.labels[labels], models)


def cluster_distances(losses: Array, labels: Labels, sizes: Array) -> Array:
    """Return how much more the models of two clusters lose on each other's data: ``[k, k]``.

    It is ``max(L_ij - L_jj, L_ji - L_ii, 0)``, with ``L_ij`` the loss of model i on the samples of
    cluster j. It is the largest number where a loss is unknown or infinite.

    Args:
        losses: ``[c, k]`` of each model on each client's data.
        labels: ``[c]`` the cluster of each client.
        sizes: ``[c]`` the samples of each client.

    >>> losses = np.array([[0.1, 0.5], [0.3, 0.5], [0.9, 0.2]])
    >>> cluster_distances(losses, np.array([0, 0, 1]), np.ones(3)).round(2).tolist()
    [[0.0, 0.7], [0.7, 0.0]]
    """
    k = losses.shape[1]
    members = (np.arange(k)[:, None] == labels) * sizes
    with np.errstate(invalid="ignore"):
        of_cluster = (members @ np.nan_to_num(losses, nan=np.inf)) / members.sum(1, keepdims=True)
        excess = of_cluster.T - of_cluster.diagonal()
        distances = np.maximum(np.maximum(excess, excess.T), 0.0)
    distances[~np.isfinite(distances)] = np.finfo(np.float64).max / 4
    np.fill_diagonal(distances, 0.0)
    return np.asarray(distances)
