"""Which local models and which losses ONE_SHOT can believe.

A pair of honest clients tells the same story twice: the loss of either model on the other's data.
And a client's own model fits the client's own training data. A client that contradicts all others
is not believed, and a model that does not even fit the data of its own client is useless. Clients
with the very same model are one client under several names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.methods._common.run import Run

if TYPE_CHECKING:
    from srfca.distances import ModelSet
    from srfca.methods.sr_fca.options import SRFCA

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

CONTRADICTION = 20.0
"""Factor between what a client reports and what others do from which on it is not believed."""
DEVIATIONS = 6.0
"""The same, in standard deviations over the clients, where clients differ more than that."""
MISFIT = 1.5
"""Factor by which models of others fit a client better than its own, from which on that is useless.
"""
GAP = 1.6
"""Factor between such misfits and those of all other clients, without which nobody is useless."""
BAD_FIT = 4.0
"""Factor by which a distrusted client's model fits others worse than usual if it is useless."""
_BETTER = 3
"""Models, or clients, of others that must show it."""
_MOST = 0.4
"""Largest fraction of the clients that is screened out; more are no bad clients."""
_PROJECTIONS = 4
"""Random directions along which models are compared."""
_SAME = 1e-3
"""Largest difference of two models that are the same, in typical deviations."""
_FEW = 5
"""With fewer clients nobody is screened out."""


def screen(run: Run, options: SRFCA, local_models: ModelSet) -> Mask:
    """Distrust clients whose losses contradict all others, and find useless local models.

    It needs the losses of all local models on all clients' data, so that nothing is screened with
    other distances, or with many clients.

    Args:
        run: The run; losses of distrusted clients do not count in it from now on.
        options: The parameters.
        local_models: The local models of c clients.

    Returns:
        ``[c]`` whose model is useless, or that of an earlier client.
    """
    clients = local_models.clients
    nobody = np.zeros(len(clients), dtype=bool)
    if options.distance not in ("cross_loss", "one_sided_loss") or len(clients) < _FEW:
        return nobody
    if run.num_clients > options.all_pairs:
        return nobody
    losses = local_models.losses_on(clients).double().numpy()
    if (losses < 0).any():  # ratios of losses mean nothing then
        return nobody
    liars = contradicting(losses)
    if liars.any():
        run.distrust(clients[liars])
        local_models.forget(clients[liars])
    return useless(losses) | fits_nobody(losses, liars) | copies(local_models.models)


def contradicting(losses: Matrix) -> Mask:
    """Return which clients report losses that contradict what the others report.

    The loss of a client's model on another's data is about that of the other's model on the
    client's data. The median logarithm of their ratio over the other clients tells whether a client
    reports too little or too much, compared with the median client.

    Args:
        losses: ``[c, c]`` of each local model on each client's data, NaN if unknown.

    Returns:
        ``[c]``

    Examples:
        >>> losses = np.full((6, 6), 2.0)
        >>> losses[:, 4] = 0.0
        >>> contradicting(losses).tolist()
        [False, False, False, False, True, False]
    """
    with np.errstate(all="ignore"):
        logs = np.log(np.clip(losses, np.finfo(np.float64).tiny, np.finfo(np.float64).max))
        ratios = logs - logs.T
        np.fill_diagonal(ratios, np.nan)
        comparable = ~np.isnan(ratios).all(0)
        middle = np.full(len(losses), np.nan)
        middle[comparable] = np.nanmedian(ratios[:, comparable], axis=0)
    if not comparable.any():
        return np.zeros(len(losses), dtype=bool)
    deviation = np.abs(middle - np.median(middle[comparable]))
    typical = 1.4826 * float(np.median(deviation[comparable]))
    liars: Mask = deviation > max(np.log(CONTRADICTION), DEVIATIONS * typical)
    return _unless_many(liars)


def useless(losses: Matrix) -> Mask:
    """Return whose local model fits its client's data much worse than models of others do.

    Local models that have not trained for long fit badly everywhere: there must be a gap between
    bad clients and all others.

    Args:
        losses: ``[c, c]`` of each local model on each client's training data, NaN if unknown.

    Returns:
        ``[c]``

    Examples:
        >>> losses = np.full((6, 6), 1.0)
        >>> np.fill_diagonal(losses, [0.1, 0.1, 0.1, 0.1, 0.1, 5.0])
        >>> useless(losses).tolist()
        [False, False, False, False, False, True]
    """
    own_losses = np.diag(losses)
    others = np.where(np.isnan(losses), np.inf, losses)
    np.fill_diagonal(others, np.inf)
    better = np.sort(others, axis=0)[min(_BETTER, len(losses) - 1) - 1]
    comparable = np.isfinite(better) & np.isfinite(own_losses)
    tiny = np.finfo(np.float64).tiny
    misfit = np.log(own_losses + tiny) - np.log(better + tiny)
    misfits: Mask = (misfit > np.log(MISFIT)) & np.isfinite(better)
    others_misfit = misfit[comparable & ~misfits]
    if misfits.any() and len(others_misfit):
        gap = np.nanmin(misfit[misfits]) - others_misfit.max()
        misfits &= gap > np.log(GAP)
    return _unless_many(misfits)


def fits_nobody(losses: Matrix, distrusted: Mask) -> Mask:
    """Return whose local model does badly on everyone's data, among distrusted clients.

    Such a client may not lie: its losses contradict those of the others because its model is bad.

    Args:
        losses: ``[c, c]`` of each local model on each client's training data, NaN if unknown.
        distrusted: ``[c]``; what these clients report does not count.

    Returns:
        ``[c]``

    Examples:
        >>> losses = np.full((6, 6), 1.0)
        >>> losses[5] = 50.0
        >>> fits_nobody(losses, np.arange(6) > 3).tolist()
        [False, False, False, False, False, True]
    """
    trusted = np.where(np.isnan(losses) | distrusted, np.inf, losses)
    np.fill_diagonal(trusted, np.inf)
    fit = np.sort(trusted, axis=1)[:, min(_BETTER, len(losses) - 1) - 1]
    misfits: Mask = distrusted & (fit > BAD_FIT * np.median(fit))
    return misfits


def copies(models: Tensor) -> Mask:
    """Return which local models are those of an earlier client, up to a thousandth.

    Models are compared by a few random projections, in units of a typical deviation.

    Args:
        models: ``[c, P]``

    Returns:
        ``[c]``

    Examples:
        >>> rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [2.0, 2.0], [0.0, 5.0]])
        >>> copies(rows).tolist()
        [False, False, True, False, False]
    """
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(models.shape[1], _PROJECTIONS, generator=generator)
    points = (models @ directions.to(models)).double().cpu().numpy()
    typical = np.median(np.abs(points - np.median(points, axis=0)), axis=0)
    apart = np.abs(points[:, None] - points) <= _SAME * typical
    mask: Mask = np.tril(apart.all(2), -1).any(1)
    return _unless_many(mask)


def _unless_many(mask: Mask) -> Mask:
    return mask if mask.mean() <= _MOST else np.zeros_like(mask)
