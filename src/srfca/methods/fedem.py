"""FedEM: every client's data are a mixture of distributions that all clients share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.algorithms import Descent, Posterior
from srfca.federation.local_training import LocalTraining
from srfca.federation.mixture import Mixture
from srfca.federation.replies import Clients
from srfca.federation.requests import Shares, Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.init import Start, starting_models
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods._common.server_update import ServerUpdate
from srfca.methods.registry import register
from srfca.parameters import constrained
from srfca.random import Key


@register
@dataclass(frozen=True, kw_only=True)
class FedEM(Method):
    """Train k components that all clients share; client t predicts with its mixture pi_t of them.

    Args:
        k: Number of components.
        start: ``distant`` (models of k clients that do badly with each other's), ``clients`` (of
            clients drawn at random), or ``random`` (as in the paper).
        weighting: How the server weights client t in the mean of component j: by
            ``responsibilities``, ``n_t pi_tj``, or by ``samples``, n_t, as in the paper.
        lr_factor: Factor of the learning rate of ``local``: the losses of a component are weighted
            by posteriors, so its gradients are smaller than those of a model of all samples.
        participation: The fraction of the clients that take part in a round.
        fine_tune_steps: As for every method; a client fine-tunes its largest component, and keeps
            its mixture if that is better.

    >>> from srfca import LocalTraining, Simulation, data, models
    >>> fed = Simulation(data.rotated_digits(num_clients=12, rotations=2), models.mlp(64, 32, 10))
    >>> result = FedEM(k=2, local=LocalTraining(steps=60, batch_size=10, lr=0.5)).fit(fed, seed=0)
    >>> result.mixture_weights.shape, result.partition == fed.data.truth
    (torch.Size([12, 2]), True)
    """

    key: ClassVar[str] = "fedem"
    name: ClassVar[str] = "FedEM"
    paper: ClassVar[str] = (
        "Marfoq, Neglia, Bellet, Kameni, Vidal: Federated Multi-Task Learning under a Mixture of "
        "Distributions. NeurIPS 2021."
    )
    family: ClassVar[Family] = "personalization"
    needs_k: ClassVar[bool] = True
    searched: ClassVar[Mapping[str, SearchSpace]] = {"lr_factor": Range(0.5, 4.0, log=True)}

    k: int = constrained(2, at_least=1)
    start: Start = "distant"
    weighting: Literal["responsibilities", "samples"] = "responsibilities"
    lr_factor: float = constrained(1.0, more_than=0)
    participation: float = constrained(1.0, more_than=0, at_most=1)

    @property
    def trainings(self) -> float:
        """One for each component."""
        return self.k * self.participation

    def solve(self, run: Run) -> Answer:
        """Train the components, and find every client's mixture of them."""
        everyone = one_cluster(run)
        local = replace(self.local, lr=self.lr_factor * self.local.lr)
        theta, _ = starting_models(run, self.k, self.start, self.local, self.local.steps, "start")
        pi, server = uniform(run.num_clients, theta), ServerUpdate(run, local, local.rounds)
        steps = self.k * sum(num_participants(everyone, self.participation)) * local.steps
        with run.stage("FEDEM", steps):
            for number in range(local.rounds):
                key = run.key("fedem", number)
                clients = participants(run.federation, everyone, self.participation, key)
                mixture = Mixture(theta, pi[torch.as_tensor(clients)])
                pi = update_mixtures(run, pi, mixture, clients)
                rows, replied = train_components(run, mixture, clients, local, key)
                weights = run.sizes.to(theta.device)[torch.as_tensor(replied)].unsqueeze(1)
                if self.weighting == "responsibilities":
                    weights = weights * pi[torch.as_tensor(replied)]
                aggregated = aggregate(rows, weights.expand(-1, self.k), theta)
                theta = server.update(number, theta, aggregated)
                run.end_round("FEDEM", number, local.rounds, Mixture(theta, pi))
        theta = server.result(local.rounds - 1, theta)
        pi = update_mixtures(run, pi, Mixture(theta, pi), run.everyone)
        answer = Answer.mixed(Mixture(theta, pi))
        assert answer.mixture_weights is not None
        notes = {"mixture": answer.mixture_weights.tolist()}
        run.record("FEDEM", Partition(answer.labels), answer.predictors, notes=notes)
        return answer


def uniform(num_clients: int, theta: Tensor) -> Tensor:
    """Return equal weights of all components for each client: ``[m, k]``."""
    return theta.new_full((num_clients, len(theta)), 1 / len(theta))


def update_mixtures(run: Run, pi: Tensor, mixture: Mixture, clients: Clients) -> Tensor:
    """Return the weights ``[m, k]``, updated for the clients that reply (the E-step)."""
    replies = run.ask(Shares(clients, mixture))
    pi = pi.clone()
    pi[torch.as_tensor(replies.clients)] = replies.values
    return pi


def train_components(
    run: Run, mixture: Mixture, clients: Clients, local: LocalTraining, key: Key
) -> tuple[Tensor, Clients]:
    """Train every component at every client, on its part of the client's samples.

    Component j has the weighted loss ``1/b sum_i q_i(j) loss(x_i, y_i)`` on a batch of b samples,
    where ``q_i(j)`` is the posterior of the component with the components of the round's start
    (``Mixture``).

    Returns:
        Rows ``[c, k, P]``, and the clients ``[c]`` that replied.
    """
    c, k = len(clients), len(mixture.models)
    component = torch.arange(k).repeat(c)
    weights = mixture.weights.repeat_interleave(k, 0)
    posterior = Posterior(replace(mixture, weights=weights), component)
    request = Train(
        clients.repeat(k), mixture.models.repeat(c, 1), local, key, Descent(posterior=posterior)
    )
    replies = run.train(request, "training of a component")
    return replies.values.view(-1, k, replies.values.shape[1]), replies.clients[::k]


def aggregate(rows: Tensor, weights: Tensor, theta: Tensor) -> Tensor:
    """Return weighted means ``[k, P]`` of rows ``[c, k, P]``; theta where all weights are 0."""
    weights = weights.to(rows.dtype)
    total = weights.sum(0)
    means = torch.einsum("ck,ckp->kp", weights / total.clamp(min=1e-30), rows)
    return torch.where((total > 0).unsqueeze(1), means, theta)
