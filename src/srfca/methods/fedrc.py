"""FedRC: soft clusters of concepts, whatever the classes and inputs of the clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.mixture import Mixture
from srfca.federation.replies import Clients
from srfca.federation.requests import Shares
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.init import Start, starting_models
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods._common.server_update import ServerUpdate
from srfca.methods.fedem import aggregate, train_components, uniform
from srfca.methods.registry import register
from srfca.parameters import constrained

MIN_CLASS_SHARE = 1e-8
"""Least share of a class among a cluster's samples."""


@register
@dataclass(frozen=True, kw_only=True)
class FedRC(Method):
    """Train clusters by EM on ``exp(-loss) / (share of the class in the cluster)``.

    A class that is common in a cluster says little for it: clients are not put together because
    they have the same classes, but because they label alike.

    Args:
        max_clusters: Number of clusters at the start, but no more than one for every two clients.
            Some are removed.
        remove_below: Clusters that account for less than this fraction of all samples are removed;
            with 0 none is.
        start: ``distant`` (models of clients that do badly with each other's), ``clients`` (of
            clients drawn at random), or ``random``.
        weighting: How the server weights client i in the mean of cluster k: by
            ``responsibilities``, ``n_i omega_ik``, or by ``samples``, n_i, as the authors do.
        lr_factor: Factor of the learning rate of ``local``: the losses of a cluster are weighted by
            posteriors, so its gradients are smaller than those of a model of all samples.
        participation: The fraction of the clients that take part in a round.
        fine_tune_steps: As for every method; a client fine-tunes its largest cluster's model, and
            keeps its mixture if that is better.

    >>> from srfca import LocalTraining, Simulation, data, models
    >>> fed = Simulation(data.rotated_digits(num_clients=12, rotations=2), models.mlp(64, 32, 10))
    >>> local = LocalTraining(steps=60, batch_size=10, lr=0.5)
    >>> result = FedRC(max_clusters=2, local=local).fit(fed, seed=0)
    >>> result.partition == fed.data.truth
    True
    """

    key: ClassVar[str] = "fedrc"
    name: ClassVar[str] = "FedRC"
    paper: ClassVar[str] = (
        "Guo, Tang, Lin: FedRC: Tackling Diverse Distribution Shifts Challenge in Federated "
        "Learning by Robust Clustering. ICML 2024."
    )
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "max_clusters": Range(2, 8, integer=True),
        "lr_factor": Range(0.5, 4.0, log=True),
    }

    max_clusters: int = constrained(6, at_least=1)
    remove_below: float = constrained(0.05, at_least=0, less_than=1)
    start: Start = "distant"
    weighting: Literal["responsibilities", "samples"] = "responsibilities"
    lr_factor: float = constrained(1.0, more_than=0)
    participation: float = constrained(1.0, more_than=0, at_most=1)

    @property
    def trainings(self) -> float:
        """One for each cluster at the start, at most."""
        return self.max_clusters * self.participation

    def solve(self, run: Run) -> Answer:
        """In each round: find the responsibilities, train the clusters, remove small ones."""
        everyone, k = one_cluster(run), min(self.max_clusters, max(1, run.num_clients // 2))
        local = replace(self.local, lr=self.lr_factor * self.local.lr)
        theta, _ = starting_models(run, k, self.start, self.local, self.local.steps, "fedrc start")
        state = Responsibilities(uniform(run.num_clients, theta), run.sizes.to(theta))
        steps = k * sum(num_participants(everyone, self.participation)) * local.steps
        removed, server = list[dict[str, int]](), ServerUpdate(run, local, local.rounds)
        with run.stage("FEDRC", 0 if self.remove_below else steps):
            for number in range(local.rounds):
                key = run.key("fedrc", number)
                clients = participants(run.federation, everyone, self.participation, key)
                mixture = state.mixture(theta, clients)
                state.update(run, mixture, clients)
                rows, replied = train_components(run, mixture, clients, local, key)
                weights = state.sizes[torch.as_tensor(replied)].unsqueeze(1)
                if self.weighting == "responsibilities":
                    weights = weights * state.omega[torch.as_tensor(replied)]
                aggregated = aggregate(rows, weights.expand(-1, len(theta)), theta)
                theta = server.step(theta, aggregated)
                kept = state.keep(self.remove_below)
                if len(kept) < len(theta):
                    theta = theta[kept]
                    removed.append({"round": number + 1, "clusters": len(theta)})
                server.add(number, theta)
                run.end_round("FEDRC", number, local.rounds, Mixture(theta, state.omega))
            theta = server.result(local.rounds - 1, theta)
            state.update(run, state.mixture(theta, run.everyone), run.everyone)
        answer = Answer.mixed(Mixture(theta, state.omega))
        assert answer.mixture_weights is not None
        notes = {"mixture": answer.mixture_weights.tolist(), "removed": removed}
        run.record("FEDRC", Partition(answer.labels), answer.predictors, notes=notes)
        return answer


class Responsibilities:
    """How much of each client's samples, and of each class, each of k clusters accounts for.

    Args:
        omega: ``[m, k]`` each client's weights of the clusters.
        sizes: ``[m]`` the clients' numbers of samples.

    Attributes:
        class_shares: ``[k, g]`` the shares of the classes among each cluster's samples; None until
            a client has replied, when all classes count alike.
    """

    def __init__(self, omega: Tensor, sizes: Tensor) -> None:
        self.omega, self.sizes = omega, sizes
        self.class_shares: Tensor | None = None
        self._samples: Tensor | None = None  # [m, k, g] of each client, cluster and class

    def mixture(self, theta: Tensor, clients: Clients) -> Mixture:
        """Return the mixtures of models ``[k, P]`` of some clients ``[c]``."""
        return Mixture(theta, self.omega[torch.as_tensor(clients)], self.class_shares)

    def update(self, run: Run, mixture: Mixture, clients: Clients) -> None:
        """Ask clients for their responsibilities with their mixtures (the E-step)."""
        replies = run.ask(Shares(clients, mixture, by_class=True))
        if not len(replies.clients):
            return
        at, shares = torch.as_tensor(replies.clients), replies.values.to(self.omega)
        self.omega = self.omega.index_copy(0, at, shares.sum(2))
        if self._samples is None:
            self._samples = shares.new_zeros(len(self.omega), *shares.shape[1:])
        self._samples[at] = shares * self.sizes[at].view(-1, 1, 1)
        self.class_shares = cluster_class_shares(self._samples)

    def keep(self, least: float) -> list[int]:
        """Remove clusters of a smaller fraction of all samples, and return those that are left."""
        fractions = self.sizes @ self.omega / self.sizes.sum()
        kept = (fractions >= least).nonzero().flatten().tolist() or [int(fractions.argmax())]
        if len(kept) < len(fractions):
            omega = self.omega[:, kept]
            total = omega.sum(1, keepdim=True)
            self.omega = torch.where(total > 0, omega / total.clamp(min=1e-30), 1 / len(kept))
            if self._samples is not None:
                self._samples = self._samples[:, kept]
                self.class_shares = cluster_class_shares(self._samples)
        return kept


def cluster_class_shares(samples: Tensor) -> Tensor:
    """Return the shares of classes among the samples of each cluster: ``[k, g]``.

    Args:
        samples: ``[m, k, g]`` of each client, cluster and class.

    >>> cluster_class_shares(torch.tensor([[[3.0, 1.0]], [[1.0, 3.0]], [[4.0, 0.0]]]))
    tensor([[0.6667, 0.3333]], dtype=torch.float64)
    """
    totals = samples.double().sum(0).clamp(min=MIN_CLASS_SHARE)
    return totals / totals.sum(1, keepdim=True)
