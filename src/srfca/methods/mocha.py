"""MOCHA: an individual model for every client, and how the clients' tasks are related."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.algorithms import Descent
from srfca.federation.requests import Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.registry import register
from srfca.parameters import constrained

RIDGE = 0.01
"""Weight of the identity in every learned Omega, so that no direction is given up for good."""


@register
@dataclass(frozen=True, kw_only=True)
class MOCHA(Method):
    """Minimize ``sum_t F_t(w_t) + mu/2 tr(W Omega^-1 W^T)`` over W = (w_1 ... w_m) and Omega.

    Omega has trace m, so at its start, the identity, every client pays ``mu/2 |w_t|^2``, however
    many clients there are. If it is ``clustered``, no eigenvalue is more than m/k, so that k groups
    of equal models cost the least.

    Args:
        mu: lambda in the paper: how strongly the clients' models are coupled.
        relationship: ``learned``: Omega is positive semidefinite, and the best for W;
            ``clustered``: it is also at most m/k times the identity, the convex form of k
            clusters; ``mean``: clients are pulled to their mean, ``mu/2 sum_t |w_t - mean|^2``.
        k: The number of clusters, for ``clustered`` alone.
        participation: The fraction of the clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> MOCHA(local=local).fit(federation).models.shape
        torch.Size([8, 6])
    """

    key: ClassVar[str] = "mocha"
    name: ClassVar[str] = "MOCHA"
    paper: ClassVar[str] = (
        "Smith, Chiang, Sanjabi, Talwalkar: Federated Multi-Task Learning. NeurIPS 2017. The "
        "relationship is learned as in Zhang, Yeung: A Convex Formulation for Learning Task "
        "Relationships in Multi-Task Learning. UAI 2010."
    )
    family: ClassVar[Family] = "personalization"
    clustered: ClassVar[bool] = False
    server_settings: ClassVar[tuple[str, ...]] = ()
    searched: ClassVar[Mapping[str, SearchSpace]] = {"mu": Range(0.03, 30.0, log=True)}

    mu: float = constrained(0.3, more_than=0)
    relationship: Literal["learned", "clustered", "mean"] = "learned"
    k: int | None = constrained(None, at_least=1)
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            (self.k is not None) == (self.relationship == "clustered"),
            f"k is for relationship='clustered', which needs it, but k is {self.k} and "
            f"relationship is {self.relationship!r}",
        )

    def solve(self, run: Run) -> Answer:
        """Train the clients' models, and learn Omega beside them."""
        couplings: dict[str, Coupling] = {
            "learned": learned_coupling,
            "clustered": lambda rows: clustered_coupling(rows, self.k or 1),
            "mean": mean_coupling,
        }
        rows = multi_task(run, self, couplings[self.relationship])
        alone = Partition(run.everyone)
        run.record("MOCHA", alone, rows)
        return Answer(alone.labels, rows)


Coupling = Callable[[Tensor], Tensor]
"""From the clients' rows ``[m, P]`` to Omega^-1 ``[m, m]``, in double precision."""


def multi_task(run: Run, options: MOCHA, coupling: Coupling) -> Tensor:
    """Train the clients' models: ``[m, P]``. The coupling acts on their difference from w0.

    Clients and coupling are split by the alternating direction method of multipliers. In a round
    client t takes local steps on ``F_t(w) + rho/2 |w - (z_t - u_t)|^2`` from its w_t. The server
    then finds in closed form the z that minimizes the coupling plus the distance to w + u, and adds
    w - z to u. So Omega may be ill conditioned: it never meets the clients' learning rate. A client
    that has not replied yet is at the mean of those that have. Optimizers keep their state, because
    each client trains one model from round to round.
    """
    local, everyone, w0 = options.local, one_cluster(run), run.initial_model()
    rho = 1 / (local.lr * min(local.local_steps, local.steps))
    pulled = replace(local, mu=rho, keep_state=local.has_state)
    w = w0.repeat(run.num_clients, 1)
    z, u = torch.zeros_like(w), torch.zeros_like(w)
    trained = torch.zeros(len(w), dtype=torch.bool, device=w.device)
    steps = sum(num_participants(everyone, options.participation)) * local.steps
    with run.stage("MOCHA", steps):
        for number in range(local.rounds):
            key = run.key("mocha", number)
            clients = participants(run.federation, everyone, options.participation, key)
            index = torch.tensor(clients, device=w.device)
            pull = Descent(anchors=w0 + z[index] - u[index])
            replies = run.train(Train(clients, w[index], pulled, key, pull), "training")
            replied = torch.tensor(replies.clients, device=w.device)
            w = w.index_copy(0, replied, replies.values)
            trained[replied] = True
            if trained.any():
                w[~trained] = w[trained].mean(0)
            moved = w - w0
            z = proximal_step(moved + u, coupling(moved), options.mu / rho)
            u = u.index_add(0, replied, (moved - z)[replied])
            run.end_round("MOCHA", number, local.rounds, w0 + z)
    return w0 + z


def proximal_step(rows: Tensor, inverse: Tensor, weight: float) -> Tensor:
    """Return ``argmin_z |z - rows|^2 + weight tr(z^T Omega^-1 z)``: ``[m, P]``."""
    identity = torch.eye(len(rows), dtype=torch.float64, device=inverse.device)
    return torch.as_tensor(torch.linalg.inv(identity + weight * inverse)).to(rows) @ rows


def learned_coupling(rows: Tensor) -> Tensor:
    """Return the inverse of the Omega that is best for the clients' rows ``[m, P]``."""
    return torch.as_tensor(torch.linalg.inv(relationship(rows)))


def relationship(rows: Tensor) -> Tensor:
    """Return Omega ``[m, m]``: ``m (W^T W)^1/2 / tr (W^T W)^1/2``, mixed with the identity."""
    values, vectors = torch.linalg.eigh(rows.double() @ rows.double().T)
    roots = values.clamp(min=0).sqrt()
    share = len(rows) * roots / roots.sum().clamp(min=torch.finfo(roots.dtype).tiny)
    return torch.as_tensor((vectors * ((1 - RIDGE) * share + RIDGE)) @ vectors.T)


def clustered_coupling(rows: Tensor, k: int) -> Tensor:
    """Return the inverse of the Omega of k clusters that is best for the rows: ``[m, m]``.

    It is the best one below the identity, of trace k, scaled to the trace m. It has the
    eigenvectors of the rows' products ``[m, m]``; its eigenvalues before scaling are
    ``min(1, s_i / level)`` for the singular values s_i, at the level where they add up to k
    (``capped_shares``). It is mixed with the identity as in ``relationship``.
    """
    values, vectors = torch.linalg.eigh(rows.double() @ rows.double().T)
    k = min(k, len(rows))
    share = len(rows) / k * capped_shares(values.clamp(min=0).sqrt(), k)
    return torch.as_tensor((vectors / ((1 - RIDGE) * share + RIDGE)) @ vectors.T)


def capped_shares(sizes: Tensor, total: float) -> Tensor:
    """Return the x in [0, 1] of this total that minimize ``sum sizes^2 / x``: ``[m]``.

    >>> capped_shares(torch.tensor([8.0, 1.0, 1.0, 2.0]), 2)
    tensor([1.0000, 0.2500, 0.2500, 0.5000])
    """
    order = sizes.argsort(descending=True)
    ranked = sizes[order]
    tails = ranked.flip(0).cumsum(0).flip(0)  # of the sizes from each rank on
    for capped in range(int(total) + 1):
        rest = total - capped
        if capped == len(sizes) or rest <= 0 or tails[capped] <= 0:
            shares = torch.zeros_like(ranked)
            shares[:capped] = 1.0
            break
        shares = ranked * rest / tails[capped]
        shares[:capped] = 1.0
        if bool(shares[capped:].max() <= 1):
            break
    return torch.empty_like(sizes).index_copy(0, order, shares)


def mean_coupling(rows: Tensor) -> Tensor:
    """Return the matrix ``[m, m]`` that maps clients to their difference from the mean."""
    identity = torch.eye(len(rows), dtype=torch.float64, device=rows.device)
    return identity - 1 / len(rows)
