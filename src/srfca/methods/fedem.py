"""FedEM: every client's data are a mixture of distributions that all clients share.

Marfoq, Neglia, Bellet, Kameni, Vidal: Federated Multi-Task Learning under a Mixture of
Distributions. NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.errors import require, unknown
from srfca.federation.base import Focus, Mixture, Tick, Work
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.rounds import check_finite, counts, everybody, heard, participants
from srfca.methods.run import Run
from srfca.methods.starts import check_start, starting_models
from srfca.random import Key

WEIGHTINGS = ("responsibilities", "samples")


@dataclass(frozen=True, kw_only=True)
class FedEM(Method):
    """k components that all clients share; client t predicts with its own mixture pi_t of them.

    Args:
        k: Number of components.
        start: ``distant`` (models of k clients that do badly with each other's), ``clients`` (of
            clients drawn at random), or ``random`` (as in the paper).
        weighting: How the server weighs client t in the mean of component j: by
            ``responsibilities``, ``n_t pi_tj``, or by ``samples``, n_t, as in the paper.
        rate: What the rate of ``work`` is multiplied by: the losses of a component are weighted by
            posteriors, so that its gradients are smaller than those of a model of all samples.
        participation: The fraction of the clients that take part in a round.
        personal_lr: As of every method.
        personal_steps: As of every method (``Method``); a client fine-tunes its largest component,
            and keeps its mixture if that is better.
        work: How clients train each component.

    >>> from srfca import Simulation, Work, data, models
    >>> fed = Simulation(data.rotated_digits(clients=12, rotations=2), models.mlp(64, 32, 10))
    >>> result = FedEM(k=2, work=Work(steps=60, batch_size=10, lr=0.5)).fit(fed, seed=0)
    >>> result.mixture.shape, result.partition == fed.data.truth
    (torch.Size([12, 2]), True)
    """

    name: ClassVar[str] = "FedEM"

    k: int = 2
    start: str = "distant"
    weighting: str = "responsibilities"
    rate: float = 1.0
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.k >= 1, f"k must be at least 1, not {self.k}")
        check_start(self.start)
        if self.weighting not in WEIGHTINGS:
            raise unknown("weighting", self.weighting, WEIGHTINGS)
        require(self.rate > 0, f"rate must be positive, not {self.rate}")
        require_share(self.participation)

    @property
    def trainings(self) -> float:
        """One for each component."""
        return self.k * self.participation

    def solve(self, run: Run) -> Answer:
        """Train the components, and find every client's mixture of them."""
        federation = run.federation
        every = everybody(federation)
        m = len(every)
        work = replace(self.work, lr=self.rate * self.work.lr)
        theta = starting_models(run, self.k, self.start, self.work, self.work.steps, "start")[0]
        pi = uniform(m, theta)
        steps = self.k * sum(counts(every, self.participation)) * work.steps
        with run.stage("FEDEM", steps) as tick:
            for number in range(work.rounds):
                key = Key(run.seed, "fedem", number)
                who = torch.as_tensor(participants(federation, every, self.participation, key))
                present = Mixture(theta, pi[who])
                pi[who] = unless_unknown(federation.shares(present, who.tolist()), pi[who])
                rows, sent = train_components(run, present, who, work, key, tick)
                weights = federation.sizes.to(theta.device)[who].unsqueeze(1) * sent
                if self.weighting == "responsibilities":
                    weights = weights * pi[who]
                theta = aggregate(rows, weights, theta)
        pi = unless_unknown(federation.shares(Mixture(theta, pi), range(m)), pi)
        answer = Answer.mixed(Mixture(theta, pi))
        assert answer.mixture is not None
        notes = {"mixture": answer.mixture.tolist()}
        run.record("FEDEM", Partition(answer.labels), answer.predictors, notes=notes)
        return answer


def unless_unknown(found: Tensor, before: Tensor) -> Tensor:
    """What was found, or what was there before where a client did not answer."""
    return torch.where(found.isnan(), before, found)


def uniform(m: int, theta: Tensor) -> Tensor:
    """All components alike, for each of m clients: ``[m, k]``."""
    return theta.new_full((m, len(theta)), 1 / len(theta))


def train_components(
    run: Run, present: Mixture, who: Tensor, work: Work, key: Key, tick: Tick
) -> tuple[Tensor, Tensor]:
    """Every component at every client ``who`` ``[c]``, trained on its part: ``[c, k, P]``.

    Also which of them were sent: ``[c, k]``.

    Component j has the weighted loss ``1/b sum_i q_i(j) loss(x_i, y_i)`` of a batch of b, where
    ``q_i(j)`` is proportional to ``pi_tj exp(-loss)`` with the components of the round's start.
    """
    c, k = len(who), len(present.models)
    component = torch.arange(k).repeat(c)
    focus = Focus(Mixture(present.models, present.weights.repeat_interleave(k, 0)), component)
    clients = who.repeat_interleave(k).tolist()
    starts = present.models.repeat(c, 1)
    rows = run.federation.fit(starts, clients, work, key, tick, focus=focus)
    sent = torch.tensor(heard(run.federation, rows, clients), device=rows.device)
    what = "training of a component"
    rows = check_finite(run.federation, rows, clients, what, otherwise=starts)
    return rows.view(c, k, -1), sent.view(c, k)


def aggregate(rows: Tensor, weights: Tensor, theta: Tensor) -> Tensor:
    """Means of rows ``[c, k, P]`` with weights ``[c, k]``: ``[k, P]``; theta where they are 0."""
    weights = weights.to(rows.dtype)
    total = weights.sum(0)
    means = torch.einsum("ck,ckp->kp", weights / total.clamp(min=1e-30), rows)
    return torch.where((total > 0).unsqueeze(1), means, theta)
