"""Questions that the clients' held-out data answer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.base import Federation

_PARTNERS = 5


def held_out_losses(federation: Federation, models: Tensor) -> NDArray[np.float64]:
    """``[k, m]`` loss of every model on every client's held-out data."""
    every = range(len(federation.clients))
    losses = federation.losses(models, every, "validation").cpu().double().numpy()
    least = np.nanmin(losses, initial=0.0)
    require(
        least >= 0,
        f"losses must not be negative, but one is {least:.4g}: add a constant to the loss",
    )
    return np.asarray(losses)


def interchangeable(
    losses: NDArray[np.float64], partition: Partition, level: float = 0.01
) -> NDArray[np.bool_]:
    """Which clusters' models do equally well on each other's clients: ``[k, k]``.

    ``losses`` ``[k, m]`` are the models' losses on the clients' held-out data. How much a client's
    loss would grow with the other cluster's model, averaged over both sides, has mean 0 if the two
    clusters are parts of one, however good either model is. A one-sided t-test over the clients
    tells whether it is more than that, at a level for all pairs together; a usual loss that grows
    2.5 times is more than that, even where few samples make the test blind. Losses of few samples
    are often close to 0 and sometimes long: what counts is log(usual loss + loss). Clients whose
    losses are not known, or infinite, do not count; clusters of no others are not joined.
    """
    from scipy.special import stdtrit

    count = partition.num_clusters
    pairs = count * (count - 1) // 2
    known = np.isfinite(losses)
    same = np.eye(count, dtype=bool)
    for a in range(count):
        for b in range(a):
            in_a, in_b = (
                members[known[a, members] & known[b, members]]
                for members in (partition.members(a), partition.members(b))
            )
            if not len(in_a) or not len(in_b):
                continue
            usual = np.concatenate([losses[a, in_a], losses[b, in_b]]).mean()
            at_a, at_b = np.log(losses[[a, b]] + usual + np.finfo(np.float64).tiny)
            growth = [at_b[in_a] - at_a[in_a], at_a[in_b] - at_b[in_b]]
            mean = (growth[0].mean() + growth[1].mean()) / 2
            freedom = len(in_a) + len(in_b) - 2
            limit = 0.0
            if freedom > 0:
                pooled = sum(((each - each.mean()) ** 2).sum() for each in growth) / freedom
                error = np.sqrt(pooled * (1 / len(in_a) + 1 / len(in_b))) / 2
                limit = min(error * stdtrit(freedom, 1 - level / pairs), np.log(1.75))
            same[a, b] = same[b, a] = mean <= limit
    return same


def transfer(federation: Federation, w0: Tensor, w: Tensor) -> float:
    """How much of what a client learns alone it would have got from another client's model.

    The ratio of two gains over w0 in held-out loss, averaged over the clients: that of a few other
    clients' models, and that of the client's own. 1 if clients are alike, 0 or less if nothing
    that one learns is of use to another. 1 too if nobody learns anything alone.
    """
    every = range(len(federation.clients))

    def held_out(models: Tensor, shift: int = 0) -> float:
        clients = np.roll(every, shift).tolist()
        losses = federation.scores(models, clients, "validation").loss
        return float(losses[losses.isfinite()].mean())

    start = held_out(w0.expand(len(w), -1))
    own = start - held_out(w)
    shifts = range(1, min(_PARTNERS, len(w) - 1) + 1)
    others = start - float(np.mean([held_out(w, -shift) for shift in shifts]))
    return others / own if own > 0 else 1.0
