"""The bounds of the paper, with its names. Constants that it leaves open are parameters, 1 here."""

from __future__ import annotations

import numpy as np

from srfca.errors import require


def contraction(mu: float, smoothness: float, steps: int) -> float:
    """Return (1 - mu / L)^(T/2), by which T steps of gradient descent shrink the distance.

    Args:
        mu: The constant of strong convexity.
        smoothness: L
        steps: T

    Returns:
        From 0 to 1.

    Raises:
        InputError: Unless 0 < mu <= L.

    >>> contraction(1.0, 2.0, 4)
    0.25
    """
    require(0 < mu <= smoothness, f"needs 0 < mu <= L, not mu={mu} and L={smoothness}")
    return float((1 - mu / smoothness) ** (steps / 2))


def margin(
    threshold: float,
    eps1: float,
    eps2: float,
    mu: float,
    smoothness: float,
    diameter: float,
    steps: int,
) -> float:
    """Return Delta: how much room the gradients' errors have before an edge of ONE_SHOT is wrong.

    Delta = mu/2 (min(eps2 - lambda, lambda - eps1) / 2 - (1 - mu/L)^(T/2) D). The bounds hold only
    if it is positive.

    Args:
        threshold: lambda
        eps1: The largest distance within a cluster.
        eps2: The smallest distance across clusters.
        mu: The constant of strong convexity.
        smoothness: L
        diameter: D
        steps: T

    Returns:
        Delta.

    >>> margin(2.5, 1.0, 4.0, mu=1.0, smoothness=2.0, diameter=1.0, steps=4)
    0.25
    """
    room = min(eps2 - threshold, threshold - eps1) / 2
    return mu / 2 * (room - contraction(mu, smoothness, steps) * diameter)


def one_shot_bound(
    clients: int, dimension: int, samples: int, margin: float, lipschitz: float, b2: float = 1.0
) -> float:
    """Return p = m d exp(-n b2 Delta / (L_hat sqrt(d))), the bound on Pr[C_0 != C*].

    Args:
        clients: m.
        dimension: d.
        samples: n, of the client that has the fewest.
        margin: Delta.
        lipschitz: L_hat, the root of the sum of the squared coordinate-wise Lipschitz constants.
        b2: A positive constant that the paper does not give.

    Returns:
        p, which says nothing if it is 1 or more.

    Examples:
        >>> round(one_shot_bound(20, 10, samples=1000, margin=0.1, lipschitz=2.0), 5)
        3e-05
    """
    exponent = samples * b2 * margin / (lipschitz * np.sqrt(dimension))
    return float(clients * dimension * np.exp(-exponent))


def intra_cluster_radius(lipschitz: float, eps1: float, mu: float) -> float:
    """Return B = sqrt(2 L_hat eps1 / mu), which bounds ``|omega_c* - w_i*|`` inside a cluster.

    Args:
        lipschitz: L_hat
        eps1: The largest distance within a cluster.
        mu: The constant of strong convexity.

    Returns:
        B.

    Examples:
        >>> intra_cluster_radius(lipschitz=2.0, eps1=1.0, mu=1.0)
        2.0
    """
    return float(np.sqrt(2 * lipschitz * eps1 / mu))


def cluster_model_bound(
    samples: int,
    cluster_size: int,
    clients: int,
    dimension: int,
    trim: float,
    lipschitz: float,
    diameter: float,
    constant: float = 1.0,
) -> float:
    """Return Lambda, the statistical error of a cluster's model after TrimmedMeanGD(beta).

    L_hat d / (1 - 2 beta) (beta / sqrt(n) + 1 / sqrt(n c_min)) sqrt(log(n m L_hat D)), times a
    constant that the paper does not give.

    Args:
        samples: n
        cluster_size: c_min, the clients of the smallest cluster.
        clients: m
        dimension: d
        trim: beta, in [0, 1/2).
        lipschitz: L_hat
        diameter: D
        constant: The constant.

    Returns:
        Lambda.

    Raises:
        InputError: If beta is out of range.

    Examples:
        >>> few, many = (cluster_model_bound(n, 10, 20, 10, 0.1, 2.0, 4.0) for n in (100, 10_000))
        >>> few > many
        True
    """
    require(0 <= trim < 0.5, f"beta must be in [0, 1/2), not {trim}")
    rate = trim / np.sqrt(samples) + 1 / np.sqrt(samples * cluster_size)
    logarithm = np.sqrt(np.log(samples * clients * lipschitz * diameter))
    return float(constant * lipschitz * dimension / (1 - 2 * trim) * rate * logarithm)


def expected_kl(squared_distance: float, noise: float) -> float:
    """Return ``E_x KL(p(y_i | x), p(y_j | x))`` of two linear regressions with x ~ N(0, I).

    It is ``|w_i - w_j|^2 / (2 sigma^2)``. The paper's proposition has another factor d, which is
    wrong: ``E <w, x>^2`` is ``|w|^2``, in any dimension.

    Args:
        squared_distance: ``|w_i - w_j|^2``
        noise: sigma

    Returns:
        The divergence, at least 0.

    Examples:
        >>> expected_kl(squared_distance=4.0, noise=1.0)
        2.0
    """
    return squared_distance / (2 * noise**2)


def sr_fca_separation(samples: int, clients: int) -> float:
    """Return log(m) / n, the order of eps2 - eps1 that the paper's remark asks of ONE_SHOT.

    Args:
        samples: n
        clients: m

    Returns:
        The order, without its constant.

    Examples:
        >>> round(sr_fca_separation(samples=100, clients=100), 4)
        0.0461
    """
    return float(np.log(clients) / samples)


def ifca_separation(samples: int, clients: int, alpha: float = 1.0) -> float:
    """Return the order of separation that IFCA's analysis needs, for an initialization factor.

    Args:
        samples: n
        clients: m
        alpha: How much nearer IFCA starts to the right models than to wrong ones.

    Returns:
        The order, without its constant.

    Examples:
        >>> round(ifca_separation(samples=100, clients=100), 4)
        0.3981
    """
    by_samples = alpha ** (-2 / 5) * samples ** (-1 / 5)
    by_clients = alpha ** (-1 / 3) * samples ** (-1 / 3) * clients ** (-1 / 6)
    return float(max(by_samples, by_clients))
