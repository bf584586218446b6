"""Distances between two sets of models."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from srfca.distances.matched import matched
from srfca.distances.model_set import ModelSet
from srfca.distances.wasserstein import wasserstein
from srfca.errors import InputError, require, unknown

Distance = Callable[[ModelSet, ModelSet], np.ndarray]
"""From two sets of k and l models to distances ``[k, l]``; NaN is unknown."""

_BLOCK = 2**23
"""Numbers of two sets of models whose differences are computed at once."""


def lq(q: float) -> Distance:
    """Return the l_q norm of the difference of two models as a distance.

    It is over the trained coordinates: buffers, such as BatchNorm's statistics, do not count.

    Args:
        q: At least 1, or infinity.

    Returns:
        The distance: from two sets of models, k and l, to ``[k, l]``.

    Raises:
        InputError: Unless q >= 1.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.distances import ModelSet
        >>> fed = Simulation(data.synthetic(num_clients=2, dimension=3), models.linear(3))
        >>> clients = ModelSet.of_clients(fed, torch.tensor([[0.0] * 4, [1.0] * 4]))
        >>> lq(1)(clients, clients).tolist()
        [[0.0, 4.0], [4.0, 0.0]]
    """
    require(q >= 1, f"l_q needs q >= 1, not {q}")

    def distance(a: ModelSet, b: ModelSet) -> np.ndarray:
        return norms(a.trained, b.trained, q).cpu().numpy()

    return distance


def norms(a: Tensor, b: Tensor, q: float, block: int | None = None) -> Tensor:
    """Return the l_q norms of the differences of two sets of rows, in float64.

    For q > 2 differences are divided by the largest of their pair, so that no power overflows or
    vanishes.

    Args:
        a: ``[k, P]``
        b: ``[l, P]``
        q: At least 1, or infinity.
        block: Coordinates that are processed at once, so that the rows are never copied whole.

    Returns:
        ``[k, l]``

    Examples:
        >>> norms(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]), q=2)
        tensor([[5.]], dtype=torch.float64)
    """
    block = block or max(1, _BLOCK // (len(a) + len(b)))
    parts = (
        torch.cdist(u.double(), v.double(), p=q)
        for u, v in zip(a.split(block, 1), b.split(block, 1), strict=True)
    )
    if q == torch.inf:
        return reduce(torch.maximum, parts)
    if q > 2:
        return _scaled_norms(a, b, q, block)
    return reduce(torch.add, (part**q for part in parts)) ** (1 / q)


def _scaled_norms(a: Tensor, b: Tensor, q: float, block: int) -> Tensor:
    largest = norms(a, b, torch.inf, block)
    scale = largest.where((largest > 0) & largest.isfinite(), 1.0)
    total = torch.zeros_like(largest)
    for u, v in zip(a.split(block, 1), b.split(block, 1), strict=True):
        columns = v.double()
        for i, row in enumerate(u.double()):
            total[i] += ((columns - row).abs() / scale[i].unsqueeze(1)).pow(q).sum(1)
    return largest * total ** (1 / q)


def cosine(a: ModelSet, b: ModelSet) -> np.ndarray:
    """Return one minus the cosine of the angle between two models' trained coordinates.

    Args:
        a: k models.
        b: l models.

    Returns:
        ``[k, l]``, from 0 to 2.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.distances import ModelSet
        >>> fed = Simulation(data.synthetic(num_clients=2, dimension=3), models.linear(3))
        >>> clients = ModelSet.of_clients(fed, torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]]))
        >>> cosine(clients, clients).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    u, v = (torch.nn.functional.normalize(s.trained.double(), dim=1) for s in (a, b))
    return (1 - u @ v.T).cpu().numpy()


def cross_loss(a: ModelSet, b: ModelSet) -> np.ndarray:
    """Return the mean of the loss of a's model on b's data and of b's model on a's data.

    If one of the two is unknown, because a client did not reply, it is the other one.

    Args:
        a: k models.
        b: l models.

    Returns:
        ``[k, l]``, NaN if both are unknown.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.distances import ModelSet
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> clients = ModelSet.of_clients(fed, torch.zeros(4, 650))
        >>> float(cross_loss(clients, clients).mean().round(3))  # log(10): guesses
        2.303
    """
    return _mean_of_both(a.loss_on(b), b.loss_on(a).T)


def balanced_cross_loss(a: ModelSet, b: ModelSet) -> np.ndarray:
    """Return the cross loss as if all classes were equally common everywhere.

    Clients whose classes are differently common are far apart by plain cross loss, even if they
    would agree on every sample. Here the loss of a's model on b's data is over the classes of which
    both have at least 4 training samples, with every class weighed alike. The logarithms of a's
    class shares are subtracted from the logits: what a's model has learned of how common classes
    are does not count. 1 is the loss of guessing (``srfca.federation.BalancedLosses``).

    It is the mean of both directions, or the one that is known. A pair that shares fewer than two
    classes is unknown, NaN. The class counts of a cluster are the sums over its clients.

    The server learns the class counts of all clients, and clients learn the class shares of models
    (docs/sr_fca.md).

    Args:
        a: k models.
        b: l models.

    Returns:
        ``[k, l]``, NaN if unknown.

    Raises:
        InputError: If the clients have no classes.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.distances import ModelSet
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> clients = ModelSet.of_clients(fed, torch.zeros(4, 650))
        >>> float(balanced_cross_loss(clients, clients).mean().round(1))  # guesses
        1.0
    """
    return _mean_of_both(a.loss_on(b, "balanced"), b.loss_on(a, "balanced").T)


def presence_balanced_cross_loss(a: ModelSet, b: ModelSet) -> np.ndarray:
    """Return ``balanced_cross_loss`` where clients tell which classes they have, not how many.

    All classes that a client has count as equally common in its model.

    Args:
        a: k models.
        b: l models.

    Returns:
        ``[k, l]``, NaN if unknown.

    Raises:
        InputError: If the clients have no classes.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.distances import ModelSet
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> clients = ModelSet.of_clients(fed, torch.zeros(4, 650))
        >>> float(presence_balanced_cross_loss(clients, clients).mean().round(1))  # guesses
        1.0
    """
    return _mean_of_both(a.loss_on(b, "presence"), b.loss_on(a, "presence").T)


def _mean_of_both(forward: Tensor, backward: Tensor) -> np.ndarray:
    """Return the mean of two losses ``[k, l]``, or the one that is not NaN."""
    forward = torch.where(forward.isnan(), backward, forward)
    return ((forward + torch.where(backward.isnan(), forward, backward)) / 2).numpy()


def one_sided_loss(a: ModelSet, b: ModelSet) -> np.ndarray:
    """Return the loss of b's model on a's data alone: only b's clients have to send a model.

    Args:
        a: k models.
        b: l models.

    Returns:
        ``[k, l]``, NaN if unknown.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.distances import ModelSet
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> clients = ModelSet.of_clients(fed, torch.zeros(4, 650))
        >>> float(one_sided_loss(clients, clients).mean().round(3))  # log(10): guesses
        2.303
    """
    return b.loss_on(a).T.numpy()


DISTANCES: dict[str, Distance] = {
    "cross_loss": cross_loss,
    "balanced_cross_loss": balanced_cross_loss,
    "presence_balanced_cross_loss": presence_balanced_cross_loss,
    "one_sided_loss": one_sided_loss,
    "cosine": cosine,
    "matched": matched,
    "wasserstein": wasserstein,
    "l1": lq(1),
    "l2": lq(2),
    "linf": lq(float("inf")),
}
"""Distances by name."""

_COMPLETE = [d for name, d in DISTANCES.items() if not name.endswith("balanced_cross_loss")]
"""Distances that are known for every pair of clients that replied: NaN is an error."""


def distance_named(name: str | Distance) -> Distance:
    """Return a distance by name: one of ``DISTANCES``, or ``l3``, ``l1.5``, ... for any l_q.

    Args:
        name: ``cross_loss``, ``balanced_cross_loss``, ``presence_balanced_cross_loss``,
            ``one_sided_loss``, ``cosine``, ``matched``, ``wasserstein``, ``l1``, ``l2``, ``linf``
            or any ``l<q>``; or a distance, which is returned unchanged.

    Returns:
        The distance.

    Raises:
        InputError: If there is no distance of this name.

    >>> distance_named("l2") is DISTANCES["l2"]
    True
    """
    if not isinstance(name, str):
        return name
    if name in DISTANCES:
        return DISTANCES[name]
    try:
        return lq(float(name.removeprefix("l")))
    except InputError:
        raise
    except ValueError:
        raise unknown("distance", name, [*DISTANCES, "l3"]) from None


def allows_unknown(distance: str | Distance) -> bool:
    """Return whether a distance of NaN is a pair that cannot be compared, and not an error.

    It is for class-balanced losses, and for functions of your own.

    Args:
        distance: Its name, as for ``distance_named``, or the distance.

    Returns:
        Whether it does.

    >>> allows_unknown("balanced_cross_loss"), allows_unknown("cross_loss"), allows_unknown("l3")
    (True, False, False)
    """
    if isinstance(distance, str):
        return distance in DISTANCES and DISTANCES[distance] not in _COMPLETE
    return distance not in _COMPLETE
