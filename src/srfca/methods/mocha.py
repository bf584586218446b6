"""MOCHA: a model of its own for every client, and how the clients' tasks are related, together.

Smith, Chiang, Sanjabi, Talwalkar: Federated Multi-Task Learning. NeurIPS 2017. The relationship is
learned as in Zhang, Yeung: A Convex Formulation for Learning Task Relationships in Multi-Task
Learning. UAI 2010.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.errors import require, unknown
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.rounds import check_finite, counts, everybody, participants
from srfca.methods.run import Run
from srfca.random import Key

RIDGE = 0.01
"""Part of every learned Omega that is the identity, so that no direction is given up for good."""
UPDATES = 20
"""How often Omega is learned in a training."""
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
        work: How clients train.
    """

    name: ClassVar[str] = "MOCHA"
    clustered: ClassVar[bool] = False

    coupling: float = 0.1
    relationship: str = "learned"
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.coupling > 0, f"coupling must be positive, not {self.coupling}")
        if self.relationship not in RELATIONSHIPS:
            raise unknown("relationship", self.relationship, RELATIONSHIPS)
        require_share(self.participation)

    def solve(self, run: Run) -> Answer:
        """Train the clients' models, and learn Omega every so often."""
        m = len(run.federation.clients)
        identity = torch.eye(m, dtype=torch.float64)
        if self.relationship == "mean":
            rows = multi_task(self, run, identity - 1 / m)
        else:
            rows = multi_task(self, run, identity, learn=True)
        alone = Partition(range(m))
        run.record("MOCHA", alone, rows)
        return Answer(alone.labels, rows, own=rows)


def multi_task(options: MOCHA, run: Run, inverse: Tensor, learn: bool = False) -> Tensor:
    """``[m, P]`` the clients' models, coupled by ``inverse`` ``[m, m]``, Omega^-1.

    Clients and coupling are split as in the alternating direction method of multipliers. In a round
    client t takes local steps on ``F_t(w) + rho/2 |w - (z_t - u_t)|^2`` from its w_t; the server
    then finds the z that the coupling wants near to w + u, in closed form, and adds to u what w and
    z disagree by. W is counted from w0.
    """
    federation, work = run.federation, options.work
    partition = everybody(federation)
    w0 = federation.initial(run.seed)
    w = w0.repeat(len(partition), 1)
    z, u = torch.zeros_like(w), torch.zeros_like(w)
    rho = 1 / (work.lr * min(work.local_steps, work.steps))
    local = replace(work, prox=rho)
    coupled = resolvent(inverse, options.coupling / rho).to(w)
    every = -(-work.rounds // UPDATES)
    steps = sum(counts(partition, options.participation)) * work.steps
    with run.stage("MOCHA", steps) as tick:
        for number in range(work.rounds):
            key = Key(run.seed, "mocha", number)
            who = participants(federation, partition, options.participation, key)
            at = torch.tensor(who, device=w.device)
            rows = federation.fit(w[at], who.tolist(), local, key, tick, (w0 + z - u)[at])
            check_finite(rows, [f"client {federation.clients[c]!r}" for c in who], "training")
            w = w.index_copy(0, at, rows)
            z = coupled @ (w - w0 + u)
            u = u.index_add(0, at, (w - w0 - z)[at])
            if learn and (number + 1) % every == 0:
                inverse = torch.linalg.inv(relationship(w - w0))
                coupled = resolvent(inverse, options.coupling / rho).to(w)
    return w0 + z


def relationship(rows: Tensor) -> Tensor:
    """Omega ``[m, m]``, best for the clients' rows ``[m, P]``: ``m (W^T W)^1/2 / tr (W^T W)^1/2``.

    ``RIDGE`` of it is the identity.
    """
    values, vectors = torch.linalg.eigh((rows.double() @ rows.double().T).cpu())
    roots = values.clamp(min=0).sqrt()
    share = len(rows) * roots / roots.sum() if float(roots.sum()) > 0 else torch.ones_like(roots)
    return (vectors * ((1 - RIDGE) * share + RIDGE)) @ vectors.T


def resolvent(inverse: Tensor, weight: float) -> Tensor:
    """``(I + weight Omega^-1)^-1``: takes rows to ``argmin_z weight tr(z^T Omega^-1 z) + |z - rows|^2``."""
    identity = torch.eye(len(inverse), dtype=inverse.dtype)
    return torch.linalg.inv(identity + weight * inverse)
