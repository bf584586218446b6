"""Decisions by the clients' held-out data."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.functions import trim_count
from srfca.aggregation.outliers import num_kept, winsorize
from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.replies import ClientScores
from srfca.federation.requests import Losses, Scores
from srfca.methods._common.run import Run


def held_out_losses(run: Run, models: Tensor) -> NDArray[np.float64]:
    """Return the loss of every model on every client's held-out data.

    Args:
        run: The run.
        models: ``[k, P]``

    Returns:
        ``[k, m]``, NaN for clients that did not reply.

    Raises:
        InputError: If a loss is negative.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.methods import Run
        >>> run = Run(Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3)))
        >>> held_out_losses(run, run.initial_model().repeat(2, 1)).shape
        (2, 4)
    """
    replies = run.ask(Losses(run.everyone, models, "validation"))
    values = replies.fill(replies.values.new_full((run.num_clients, len(models)), torch.nan))
    losses = np.ascontiguousarray(values.T.cpu().double().numpy())
    minimum = np.nanmin(losses, initial=0.0)
    require(
        minimum >= 0,
        f"losses must not be negative, but one is {minimum:.4g}: add a constant to the loss",
    )
    return losses


def interchangeable(
    losses: NDArray[np.float64],
    partition: Partition,
    level: float = 0.01,
    trim: float = 0.0,
    trim_at_least: int = 1,
) -> NDArray[np.bool_]:
    """Return which clusters' models do equally well on each other's clients.

    The increase of a client's loss with the other cluster's model, averaged over both sides, has
    mean 0 if the two clusters are parts of one, however good either model is. A one-sided t-test
    over the clients tells whether it is larger, at a level for all pairs together. A typical loss
    that grows 2.5 times is larger in any case, even where few samples make the test blind. Losses
    on few samples are often close to 0 with a long tail, so the test is on log(typical loss +
    loss). Outliers are winsorized, so that no single client decides, nor the ``trim`` fraction of
    a cluster's clients.

    Args:
        losses: ``[k, m]`` of the models on the clients' held-out data. Clients whose losses are
            unknown (NaN) or infinite do not count; clusters without others are not joined.
        partition: The clusters.
        level: Level of the test.
        trim: The fraction of a cluster's clients that may be corrupt.
        trim_at_least: The least number of them.

    Returns:
        ``[k, k]``

    Examples:
        >>> from srfca import Partition
        >>> partition = Partition([0, 0, 0, 1, 1, 1])
        >>> losses = np.where(np.arange(2)[:, None] == partition.labels, 0.1, 1.0)
        >>> interchangeable(losses, partition).tolist()
        [[True, False], [False, True]]
        >>> interchangeable(np.full((2, 6), 0.1), partition).tolist()
        [[True, True], [True, True]]
    """
    from scipy.special import stdtrit

    count = partition.num_clusters
    pairs = count * (count - 1) // 2
    finite = np.isfinite(losses)
    same = np.eye(count, dtype=bool)
    for a in range(count):
        for b in range(a):
            in_a, in_b = (
                members[finite[a, members] & finite[b, members]]
                for members in (partition.members(a), partition.members(b))
            )
            if not len(in_a) or not len(in_b):
                continue
            corrupt_a, corrupt_b = (
                trim_count(len(members), trim, trim_at_least) for members in (in_a, in_b)
            )
            own_losses = (
                winsorize(losses[a, in_a], corrupt_a), winsorize(losses[b, in_b], corrupt_b),
            )  # fmt: skip
            typical = np.concatenate(own_losses).mean()
            log_a, log_b = np.log(losses[[a, b]] + typical + np.finfo(np.float64).tiny)
            growth = [
                winsorize(log_b[in_a] - log_a[in_a], corrupt_a),
                winsorize(log_a[in_b] - log_b[in_b], corrupt_b),
            ]  # fmt: skip
            mean = (growth[0].mean() + growth[1].mean()) / 2
            freedom = len(in_a) + len(in_b) - 2
            limit = 0.0
            if freedom > 0:
                pooled = sum(((part - part.mean()) ** 2).sum() for part in growth) / freedom
                kept = num_kept(len(in_a), corrupt_a) + num_kept(len(in_b), corrupt_b)
                pooled *= (freedom / (kept - 2)) ** 2
                error = np.sqrt(pooled * (1 / len(in_a) + 1 / len(in_b))) / 2
                limit = min(error * stdtrit(freedom, 1 - level / pairs), np.log(1.75))
            same[a, b] = same[b, a] = mean <= limit
    return same


def held_out_scores(
    run: Run, models: Tensor, labels: NDArray[np.int64] | None = None
) -> ClientScores:
    """Score the clients' models on their held-out data.

    Args:
        run: The run.
        models: ``[k, P]``, or ``[m, P]`` without labels.
        labels: ``[m]`` the model of each client, -1 for none; None if each client has its own.

    Returns:
        Loss and accuracy ``[m]``, NaN for clients that did not reply or have no model.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.methods import Run
        >>> run = Run(Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3)))
        >>> w0 = run.initial_model().unsqueeze(0)
        >>> held_out_scores(run, w0, np.array([0, 0, -1, 0])).loss.isnan().tolist()
        [False, False, True, False]
    """
    labels = run.everyone if labels is None else labels
    clients = np.flatnonzero(labels >= 0)
    rows = models[torch.as_tensor(labels[clients], device=models.device)]
    replies = run.ask(Scores(clients, rows, "validation"))
    return replies.values.spread(replies.clients, run.num_clients)
