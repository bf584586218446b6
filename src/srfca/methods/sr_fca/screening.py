"""Which local models and which losses ONE_SHOT can believe.

A pair of honest clients tells the same story twice: the loss of either model on the other's data.
And a client's own model fits the client's own training data. A client that contradicts all others
is not believed, unless its data explain it: those of a single class, or noisy ones. A model that
does not even fit the data of its own client is useless. Clients with the very same model are one
client under several names.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.errors import SrfcaWarning
from srfca.federation.requests import Scores
from srfca.methods._common.run import Run

if TYPE_CHECKING:
    from srfca.distances import ModelSet
    from srfca.methods.sr_fca.options import SRFCA

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

LOSS_DISTANCES = (
    "cross_loss", "one_sided_loss", "balanced_cross_loss", "presence_balanced_cross_loss",
)  # fmt: skip
"""Distances that let clients evaluate each other's local models."""
LIES = "its losses contradict those of the others"
BAD_MODEL = "its local model does not even fit its own data"
COPY = "its local model is that of another client"
CONTRADICTION = 20.0
"""Factor between what a client reports and what others do from which on it is not believed."""
DEVIATIONS = 6.0
"""The same, in standard deviations over the clients, where clients differ more than that."""
MISFIT = 1.5
"""Factor by which models of others fit a client better than its own, from which on that is useless.
"""
SPREAD = 2.0
"""Standard deviations over the clients that the misfit of a useless model is off, too."""
GAP = 1.6
"""Factor between misfits of bad clients and of all others, without which nobody is useless."""
BAD_FIT = 4.0
"""Factor by which a model that is useless for its own client, too, fits others worse than usual."""
_CONSTANT = 1e-5
"""Losses that differ by less than this, relatively, are the same for all models."""
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
NUM_WITNESSES = 32
"""Clients that stand for all others if there are too many clients for all pairs."""


@dataclass(frozen=True, eq=False)
class PeerLosses:
    """Losses of c local models on the data of their clients, and of w witnesses both ways.

    Unknown losses are NaN, and so are those of a witness with itself.

    Args:
        of_own_model: ``[c]`` of each client's model on its own data.
        reported: ``[w, c]`` of the witnesses' models on each client's data.
        witnessed: ``[w, c]`` of each client's model on the witnesses' data.
        witnesses: ``[w]`` their positions among the c clients.
    """

    of_own_model: Matrix
    reported: Matrix
    witnessed: Matrix
    witnesses: NDArray[np.int64]

    @classmethod
    def of_all(cls, losses: Matrix) -> Self:
        """Return losses in which every client is a witness.

        Args:
            losses: ``[c, c]`` of each local model on each client's data.
        """
        others = losses.copy()
        np.fill_diagonal(others, np.nan)
        return cls(np.diag(losses).copy(), others, others.T, np.arange(len(losses)))

    @classmethod
    def ask(cls, run: Run, local_models: ModelSet, all_pairs: int) -> Self:
        """Ask the clients for their losses: all pairs, or those with some witnesses.

        Args:
            run: The run.
            local_models: The local models of c clients.
            all_pairs: With more clients in the run than this, some of them are witnesses.
        """
        clients = local_models.clients
        if run.num_clients <= all_pairs:
            return cls.of_all(local_models.losses_on(clients).double().numpy())
        draw = np.random.default_rng(run.key("witnesses").word() % 2**63).permutation(len(clients))
        witnesses = np.sort(draw[:NUM_WITNESSES])
        few = local_models.take(witnesses)
        reported = few.losses_on(clients).double().numpy()
        witnessed = local_models.losses_on(few.clients).double().numpy().T
        scores = run.ask(Scores(clients, local_models.models, "train"))
        of_own_model = scores.fill(np.nan).loss.double().cpu().numpy()
        itself = (np.arange(len(witnesses)), witnesses)
        reported[itself] = np.nan
        witnessed = witnessed.copy()
        witnessed[itself] = np.nan
        return cls(of_own_model, reported, witnessed, witnesses)

    @property
    def any_negative(self) -> bool:
        """Whether a loss is negative, so that ratios of losses mean nothing."""
        return any(
            bool((part < 0).any()) for part in (self.of_own_model, self.reported, self.witnessed)
        )


def screen(run: Run, options: SRFCA, local_models: ModelSet) -> dict[int, str]:
    """Distrust clients whose losses contradict all others, and find useless local models.

    It needs losses of local models on other clients' data, so that nothing is screened with other
    distances than ``LOSS_DISTANCES``. A warning names clients that lie or copy; a bad local model
    may be bad luck, and is only noted. With more than ``all_pairs`` clients, ``NUM_WITNESSES`` of
    them, drawn by the seed, stand for all others: they evaluate every local model, and every client
    evaluates their models.

    Args:
        run: The run; losses of distrusted clients do not count in it from now on.
        options: The parameters.
        local_models: The local models of c clients.

    Returns:
        The reason for each client that is screened. It trains no cluster then, unless the reason
        is ``LIES``.
    """
    clients = local_models.clients
    if options.distance not in LOSS_DISTANCES or len(clients) < _FEW:
        return {}
    losses = PeerLosses.ask(run, local_models, options.all_pairs)
    if losses.any_negative:
        return {}
    liars = contradicting(losses)
    if liars.any():
        run.distrust(clients[liars])
        local_models.forget(clients[liars])
    of_own_model = np.where(liars, np.inf, losses.of_own_model)
    masks = (
        (LIES, liars),
        (BAD_MODEL, useless(losses) | fits_nobody(losses, liars)),
        (COPY, copies(local_models.models, of_own_model)),
    )
    reasons = {int(client): why for why, mask in masks for client in clients[mask]}
    for why, effect in (
        (LIES, "its losses and scores do not count"),
        (COPY, "it trains no cluster"),
    ):
        names = ", ".join(repr(run.client_ids[c]) for c in sorted(reasons) if reasons[c] == why)
        if names:
            message = f"screened client {names}: {why}, so {effect}"
            warnings.warn(message, SrfcaWarning, stacklevel=2)
    return reasons


def contradicting(losses: PeerLosses) -> Mask:
    """Return which clients report losses that contradict what the others report.

    What they report of others' models is far from what others report of their models
    (``asymmetric``), and from what the usual client reports of the same models. The model of a
    client with a single class is bad for all others, but the others' models are as good for it as
    for anyone. Noisy data may be far from usual too, but then no model does better on them than the
    client's own, and not all models do equally well.

    Returns:
        ``[c]``

    Examples:
        >>> losses = np.full((6, 6), 2.0)
        >>> losses[:, 4] = 0.0
        >>> contradicting(PeerLosses.of_all(losses)).tolist()
        [False, False, False, False, True, False]
    """
    reported = _logarithm(losses.reported)
    replied = ~np.isnan(reported)
    usual = np.full((len(reported), 1), np.nan)
    usual[replied.any(1), 0] = np.nanmedian(reported[replied.any(1)], axis=1)
    best = np.where(replied, reported, np.inf).min(0, initial=np.inf)
    explained = _logarithm(losses.of_own_model) <= best + np.log(MISFIT)
    liars = asymmetric(losses) & _far(_median(reported - usual))
    return _unless_many(liars & ~(explained & ~_constant(reported)))


def asymmetric(losses: PeerLosses) -> Mask:
    """Return whose models do much worse, or better, on others' data than vice versa.

    The loss of a client's model on another's data is about that of the other's model on the
    client's data. The median logarithm of their ratio over the witnesses is compared with that of
    the median client.

    Returns:
        ``[c]``
    """
    return _far(_median(_logarithm(losses.reported) - _logarithm(losses.witnessed)))


def useless(losses: PeerLosses) -> Mask:
    """Return whose local model fits its client's data much worse than models of others do.

    Local models that have not trained for long fit badly everywhere: there must be a gap between
    bad clients and all others. Where the fit of honest clients varies much, a gap may be chance:
    a bad client is also ``SPREAD`` deviations from the usual one.

    Returns:
        ``[c]``

    Examples:
        >>> losses = np.full((6, 6), 1.0)
        >>> np.fill_diagonal(losses, [0.1, 0.1, 0.1, 0.1, 0.1, 5.0])
        >>> useless(PeerLosses.of_all(losses)).tolist()
        [False, False, False, False, False, True]
    """
    better = _third_best(losses.reported)
    comparable = np.isfinite(better) & ~np.isnan(losses.of_own_model)
    misfit = _logarithm(losses.of_own_model) - _logarithm(better)
    bad = comparable & (misfit > _below_the_gap(misfit[comparable]))
    return _unless_many(bad & _far(np.where(comparable, misfit, np.nan), 0.0, SPREAD))


def _below_the_gap(misfits: Matrix) -> float:
    """Return the largest misfit of clients that are not bad; infinity if none is bad.

    Bad clients differ among themselves, and some may be just below ``MISFIT``. So it is the widest
    gap from there down to 0, where a client's own model is as good as those of others. For clients
    below ``MISFIT`` a gap has to be twice as wide.

    Args:
        misfits: ``[n]`` logarithms of the factors by which models of others fit better.

    >>> round(np.exp(_below_the_gap(np.log([30.0, 1.8, 1.4, 1.1, 0.03, 0.02]))), 2).item()
    0.03
    >>> round(np.exp(_below_the_gap(np.log([30.0, 1.8, 1.1, 1.0, 0.5, 0.4]))), 2).item()
    1.1
    >>> _below_the_gap(np.log([1.6, 1.1, 0.6, 0.5, 0.4, 0.3]))
    inf
    """
    ordered = np.sort(misfits)[::-1]
    bad, doubtful = ((ordered > limit).sum() for limit in (np.log(MISFIT), 0.0))
    if not bad or bad == len(ordered):
        return np.inf
    upper, lower = ordered[bad - 1 : doubtful], ordered[bad : doubtful + 1]
    gaps = upper[: len(lower)] - lower
    needed = np.log(GAP) * np.where(np.arange(len(gaps)) == 0, 1, 2)
    widest = int(np.where(gaps > needed, gaps, -np.inf).argmax())
    return float(lower[widest]) if gaps[widest] > needed[widest] else np.inf


def fits_nobody(losses: PeerLosses, distrusted: Mask) -> Mask:
    """Return whose local model does badly on everyone's data, and on that of its own client.

    What a distrusted client reports of its own model does not count, and neither does how good that
    is for it: it is useless if the models of others fit their data ``MISFIT`` times better, as on
    its own. A client that is believed may have a single class: then others' models must be as good
    for it as its own.

    Args:
        losses: Losses of the local models.
        distrusted: ``[c]``; what these clients report does not count.

    Returns:
        ``[c]``

    Examples:
        >>> losses = np.full((6, 6), 1.0)
        >>> losses[5] = 50.0
        >>> fits_nobody(PeerLosses.of_all(losses), np.arange(6) > 3).tolist()
        [False, False, False, False, False, True]
    """
    lies = distrusted[losses.witnesses][:, None]
    witnessed = np.where(lies, np.nan, losses.witnessed)
    usual = _logarithm(_third_best(np.where(distrusted, np.nan, witnessed).T))
    poor = _third_best(_logarithm(witnessed) - usual[:, None]) > np.log(MISFIT)
    fit = _third_best(witnessed)
    own_misfit = losses.of_own_model >= _third_best(losses.reported)
    suspects = asymmetric(losses) & own_misfit & (fit > BAD_FIT * np.median(fit))
    misfits: Mask = np.where(distrusted, poor, suspects)
    return _unless_many(misfits)


def copies(models: Tensor, own_losses: Matrix | None = None) -> Mask:
    """Return which local models are those of another client, up to a thousandth.

    The model belongs to the client whose data it fits best, and to the first if that is unknown.
    Models are compared by a few random projections, in units of a typical deviation.

    Args:
        models: ``[c, P]``
        own_losses: ``[c]`` of each model on its client's data; None, NaN and infinite are unknown.

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
    fit = np.zeros(len(points)) if own_losses is None else own_losses
    fit = np.where(np.isnan(fit), np.inf, fit)
    order = np.argsort(points[:, 0], kind="stable")
    points, mask = points[order], np.zeros(len(points), dtype=bool)
    for shift in range(1, len(points)):  # pairs that are this many places apart in this order
        near = np.abs(points[shift:] - points[:-shift]) <= _SAME * typical
        if not near[:, 0].any():
            break
        same = near.all(1)
        first, second = (
            np.minimum(order[shift:], order[:-shift])[same],
            np.maximum(order[shift:], order[:-shift])[same],
        )
        mask[np.where(fit[first] <= fit[second], second, first)] = True
    return _unless_many(mask)


def _logarithm(losses: Matrix) -> Matrix:
    limits = np.finfo(np.float64)
    return np.asarray(np.log(np.clip(losses, limits.tiny, limits.max)))


def _median(values: Matrix) -> Matrix:
    """Return the median over the witnesses ``[w, c]``, NaN if all are unknown: ``[c]``."""
    numeric = ~np.isnan(values).all(0)
    medians = np.full(values.shape[1], np.nan)
    medians[numeric] = np.nanmedian(values[:, numeric], axis=0)
    return medians


def _far(
    values: Matrix, least: float = np.log(CONTRADICTION), deviations: float = DEVIATIONS
) -> Mask:
    """Return which logarithms ``[c]`` are this far from the median, and this many deviations."""
    numeric = ~np.isnan(values)
    if not numeric.any():
        return numeric
    deviation = np.abs(values - np.median(values[numeric]))
    typical = 1.4826 * float(np.median(deviation[numeric]))
    return np.asarray(deviation > max(least, deviations * typical))


def _constant(logarithms: Matrix) -> Mask:
    """Return which clients report the same loss of most models ``[w, c]``: ``[c]``."""
    return np.asarray(_median(np.abs(logarithms - _median(logarithms))) <= _CONSTANT)


def _third_best(losses: Matrix) -> Matrix:
    """Return the third smallest of losses ``[w, c]``, infinite if fewer are known: ``[c]``."""
    ordered = np.sort(np.where(np.isnan(losses), np.inf, losses), axis=0)
    return np.asarray(ordered[min(_BETTER, len(ordered)) - 1])


def _unless_many(mask: Mask) -> Mask:
    return mask if mask.mean() <= _MOST else np.zeros_like(mask)
