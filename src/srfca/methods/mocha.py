"""MOCHA: a model of its own for every client, and how the clients' tasks are related, together.

Smith, Chiang, Sanjabi, Talwalkar: Federated Multi-Task Learning. NeurIPS 2017. The relationship is
learned as in Zhang, Yeung: A Convex Formulation for Learning Task Relationships in Multi-Task
Learning. UAI 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.errors import require, unknown
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.rounds import check_finite, counts, everybody, heard, participants
from srfca.methods.run import Run
from srfca.random import Key

RIDGE = 0.01
"""Part of every learned Omega that is the identity, so that no direction is given up for good."""
RELATIONSHIPS = ("learned", "mean")


@dataclass(frozen=True, kw_only=True)
class MOCHA(Method):
    """Minimises ``sum_t F_t(w_t) + lambda/2 tr(W Omega^-1 W^T)`` over W = (w_1 ... w_m) and Omega.

    Args:
        coupling: lambda. Omega has trace m, so that at its start, the identity, every client pays
            ``lambda/2 |w_t|^2``, however many clients there are.
        relationship: ``learned``: Omega is positive semidefinite, and the best there is for W;
            ``mean``: clients are pulled to their mean, ``lambda/2 sum_t |w_t - mean|^2``.
        participation: The fraction of the clients that take part in a round.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.
    """

    name: ClassVar[str] = "MOCHA"
    clustered: ClassVar[bool] = False

    coupling: float = 0.3
    relationship: str = "learned"
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.coupling > 0, f"coupling must be positive, not {self.coupling}")
        if self.relationship not in RELATIONSHIPS:
            raise unknown("relationship", self.relationship, RELATIONSHIPS)
        require_share(self.participation)

    def solve(self, run: Run) -> Answer:
        """Train the clients' models, and learn Omega beside them."""
        rows = multi_task(self, run, learned if self.relationship == "learned" else to_the_mean)
        alone = Partition(range(len(rows)))
        run.record("MOCHA", alone, rows)
        return Answer(alone.labels, rows)


Coupling = Callable[[Tensor], Tensor]
"""From the clients' rows ``[m, P]`` to Omega^-1 ``[m, m]``, in double precision."""


def multi_task(options: MOCHA, run: Run, coupling: Coupling) -> Tensor:
    """``[m, P]`` the clients' models, counted from w0 in the coupling.

    Clients and coupling are split as in the alternating direction method of multipliers. In a round
    client t takes local steps on ``F_t(w) + rho/2 |w - (z_t - u_t)|^2`` from its w_t; the server
    then finds the z that the coupling wants near to w + u, in closed form, and adds to u what w and
    z disagree by. So Omega may be as ill conditioned as it likes: it never meets the clients' rate.
    A client that has sent nothing yet stands at the mean of those that have.
    """
    federation, work = run.federation, options.work
    partition = everybody(federation)
    w0 = federation.initial(run.seed)
    rho = 1 / (work.lr * min(work.local_steps, work.steps))
    local = replace(work, prox=rho)
    w = w0.repeat(len(partition), 1)
    z, u = torch.zeros_like(w), torch.zeros_like(w)
    known = torch.zeros(len(w), dtype=torch.bool, device=w.device)
    steps = sum(counts(partition, options.participation)) * work.steps
    with run.stage("MOCHA", steps) as tick:
        for number in range(work.rounds):
            key = Key(run.seed, "mocha", number)
            who = participants(federation, partition, options.participation, key)
            at = torch.tensor(who, device=w.device)
            rows = federation.fit(w[at], who.tolist(), local, key, tick, anchors=w0 + z[at] - u[at])
            sent = torch.tensor(heard(federation, rows, who), device=w.device)
            rows = check_finite(federation, rows, who, "training", otherwise=w[at])
            w, at = w.index_copy(0, at, rows), at[sent]
            known[at] = True
            if known.any():
                w[~known] = w[known].mean(0)
            moved = w - w0
            z = near(moved + u, coupling(moved), options.coupling / rho)
            u = u.index_add(0, at, (moved - z)[at])
    return w0 + z


def near(rows: Tensor, inverse: Tensor, weight: float) -> Tensor:
    """``argmin_z |z - rows|^2 + weight tr(z^T Omega^-1 z)``, ``[m, P]`` as the rows."""
    identity = torch.eye(len(rows), dtype=torch.float64, device=inverse.device)
    return torch.as_tensor(torch.linalg.inv(identity + weight * inverse)).to(rows) @ rows


def learned(rows: Tensor) -> Tensor:
    """The inverse of the Omega that is best for W, the clients' rows ``[m, P]``."""
    return torch.as_tensor(torch.linalg.inv(relationship(rows)))


def relationship(rows: Tensor) -> Tensor:
    """Omega ``[m, m]``: ``m (W^T W)^1/2 / tr (W^T W)^1/2``, and ``RIDGE`` of the identity in it."""
    values, vectors = torch.linalg.eigh(rows.double() @ rows.double().T)
    roots = values.clamp(min=0).sqrt()
    share = len(rows) * roots / roots.sum().clamp(min=torch.finfo(roots.dtype).tiny)
    return torch.as_tensor((vectors * ((1 - RIDGE) * share + RIDGE)) @ vectors.T)


def to_the_mean(rows: Tensor) -> Tensor:
    """``[m, m]`` takes clients to what they differ by from their mean."""
    identity = torch.eye(len(rows), dtype=torch.float64, device=rows.device)
    return identity - 1 / len(rows)
