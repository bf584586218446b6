"""PACFL: clusters from principal angles between the subspaces of the clients' data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.clustering.linkage import Linkage, agglomerate, check_cut
from srfca.errors import require
from srfca.federation.requests import ClassCounts, Subspaces
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.rounds import require_clients, require_replies
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Choices, Range, SearchSpace
from srfca.methods.fedavg import fedavg
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class PACFL(Method):
    """Cluster clients by the angles between the leading directions of their inputs, then FedAvg.

    Args:
        rank: p, how many left singular vectors a client sends; the paper takes 3 to 5.
        angle: ``smallest``, the smallest principal angle of two subspaces, or their ``sum``.
        per_class: Send p vectors of the inputs of each class, as the authors' code does. Clients
            are then compared by the ``smallest`` angle between any vector of the one and any of the
            other.
        threshold: beta, in degrees: clusters farther apart are not joined. Or ``auto``.
        k: The number of clusters, instead of a threshold.
        linkage: ``average``, ``complete`` or ``single``.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of each cluster's clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> digits = data.rotated_digits(num_clients=8, rotations=2)
        >>> federation, local = Simulation(digits, models.mlp(64, 8, 10)), LocalTraining(steps=30)
        >>> PACFL(k=2, local=local).fit(federation).labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1]
    """

    key: ClassVar[str] = "pacfl"
    name: ClassVar[str] = "PACFL"
    paper: ClassVar[str] = (
        "Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin: Efficient Distribution Similarity "
        "Identification in Clustered Federated Learning via Principal Angles between Client Data "
        "Subspaces. AAAI 2023."
    )
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "rank": Range(1, 8, integer=True),
        "angle": Choices(("sum", "smallest")),
    }

    rank: int = constrained(5, at_least=1)
    angle: Literal["smallest", "sum"] = "sum"
    per_class: bool = False
    threshold: float | Literal["auto"] = "auto"
    k: int | None = None
    linkage: Linkage = "average"
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cut(self.threshold, self.k, self.linkage)
        require(
            not self.per_class or self.angle == "smallest",
            f"per_class needs angle='smallest', not {self.angle!r}: vectors of several classes are "
            "no basis of a subspace",
        )
        require(self.linkage != "ward", "linkage must not be 'ward': angles are no l2 distances")

    def solve(self, run: Run) -> Answer:
        """Cluster, then train."""
        m = run.num_clients
        require_clients(m, self.k)
        with run.stage("SUBSPACES"):
            classes = 0
            if self.per_class:
                classes = run.ask(ClassCounts(run.everyone)).values.shape[1]
            replies = run.ask(Subspaces(run.everyone, self.rank, classes))
            clients = replies.clients
            require_replies(clients, self.k)
            if self.per_class:
                proximity = smallest_vector_angles(replies.values)
            else:
                angles = principal_angles(replies.values)
                proximity = angles[..., 0] if self.angle == "smallest" else angles.sum(-1)
            cut = agglomerate(
                proximity, threshold=self.threshold, k=self.k, linkage=self.linkage, seed=run.seed
            )
            partition = cut.partition.embed(clients, m)
            proximities = np.full((m, m), np.nan)
            proximities[np.ix_(clients, clients)] = proximity
        w0 = run.initial_model().expand(m, -1)
        notes = {"reason": cut.reason, "heights": cut.heights.tolist()}
        run.record("SUBSPACES", partition, w0, proximities, notes)
        return fedavg(run, partition, self.local, Mean(self.weighted), self.participation)


def principal_angles(bases: Tensor) -> NDArray[np.float64]:
    """Return the principal angles between subspaces, in degrees, the smallest first.

    Args:
        bases: ``[m, f, p]`` orthonormal bases.

    Returns:
        ``[m, m, p]``, zero between a subspace and itself.
    """
    bases = bases.double()
    rows = [
        torch.linalg.svdvals(torch.einsum("fp,nfq->npq", basis, bases)).clamp(max=1.0).acos()
        for basis in bases
    ]
    angles = np.rad2deg(torch.stack(rows).cpu().numpy())
    angles[np.arange(len(bases)), np.arange(len(bases))] = 0.0
    return np.asarray((angles + angles.swapaxes(0, 1)) / 2)


def smallest_vector_angles(vectors: Tensor) -> NDArray[np.float64]:
    """Return the smallest angle between any vectors of two clients, in degrees: ``[m, m]``.

    Args:
        vectors: ``[m, f, v]`` of length 1, or 0 if a client lacks them. Signs do not matter.
    """
    vectors = vectors.double()
    rows = [torch.einsum("fp,nfq->npq", basis, vectors).abs().amax((1, 2)) for basis in vectors]
    angles = np.rad2deg(torch.stack(rows).clamp(max=1.0).acos().cpu().numpy())
    np.fill_diagonal(angles, 0.0)
    return np.asarray((angles + angles.T) / 2)
