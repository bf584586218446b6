"""PACFL: clusters from principal angles between the subspaces of the clients' data.

Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin: Efficient Distribution Similarity
Identification in Clustered Federated Learning via Principal Angles between Client Data Subspaces.
AAAI 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.linkage import agglomerate, check_cut
from srfca.errors import require, unknown
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.fedavg import fedavg
from srfca.methods.rounds import plain_mean, require_answers, require_clients, weighted_mean
from srfca.methods.run import Run

ANGLES = ("smallest", "sum")


@dataclass(frozen=True, kw_only=True)
class PACFL(Method):
    """Clients send the leading directions of their inputs, the server clusters by their angles.

    Args:
        rank: p, how many left singular vectors a client sends; the paper takes 3 to 5.
        angle: ``smallest``, the smallest principal angle of two subspaces, or their ``sum``.
        threshold: beta, in degrees: clusters farther apart are not joined. Or ``auto``.
        k: The number of clusters, in the place of a threshold.
        linkage: ``average``, ``complete`` or ``single``.
        weighted: Weigh clients by their samples, else all alike.
        participation: The fraction of each cluster's clients that take part in a round.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.
    """

    name: ClassVar[str] = "PACFL"

    rank: int = 5
    angle: str = "sum"
    threshold: float | str = "auto"
    k: int | None = None
    linkage: str = "average"
    weighted: bool = True
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.rank >= 1, f"rank must be at least 1, not {self.rank}")
        if self.angle not in ANGLES:
            raise unknown("angle", self.angle, ANGLES)
        check_cut(self.threshold, self.k, self.linkage)
        require(self.linkage != "ward", "linkage must not be 'ward': angles are no l2 distances")
        require_share(self.participation)

    def solve(self, run: Run) -> Answer:
        """Cluster, then train."""
        federation = run.federation
        m = len(federation.clients)
        require_clients(m, self.k)
        with run.stage("SUBSPACES"):
            bases = federation.subspaces(range(m), self.rank)
            here = np.flatnonzero(bases.isfinite().flatten(1).all(1).cpu().numpy())
            require_answers(here, self.k)
            angles = principal_angles(bases[torch.tensor(here, device=bases.device)])
            proximity = angles[..., 0] if self.angle == "smallest" else angles.sum(-1)
            cut = agglomerate(
                proximity, threshold=self.threshold, k=self.k, linkage=self.linkage, seed=run.seed
            )
            partition = cut.partition.spread(here, m)
            proximities = np.full((m, m), np.nan)
            proximities[np.ix_(here, here)] = proximity
        w0 = federation.initial(run.seed).expand(m, -1)
        notes = {"why": cut.why, "heights": cut.heights.tolist()}
        run.record("SUBSPACES", partition, w0, proximities, notes)
        aggregate = weighted_mean if self.weighted else plain_mean
        return fedavg(run, partition, self.work, aggregate, self.participation)


def principal_angles(bases: Tensor) -> NDArray[np.float64]:
    """Angles ``[m, m, p]`` between subspaces with orthonormal bases ``[m, f, p]``.

    In degrees, the smallest first; between a subspace and itself they are zero.
    """
    bases = bases.double()
    rows = [
        torch.linalg.svdvals(torch.einsum("fp,nfq->npq", basis, bases)).clamp(max=1.0).acos()
        for basis in bases
    ]
    angles = np.rad2deg(torch.stack(rows).cpu().numpy())
    angles[np.arange(len(bases)), np.arange(len(bases))] = 0.0
    return np.asarray((angles + angles.swapaxes(0, 1)) / 2)
