"""Which clients are the attackers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from srfca.errors import require, unknown
from srfca.federation.replies import Clients
from srfca.random import Key, client_words, streams, uniform

Placement = Literal["spread", "group", "random"]
"""Attackers are spread over all groups alike, in one group alone, or anywhere."""
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
MAX_FRACTION = 0.4


def draw_attackers(
    client_ids: Sequence[str],
    fraction: float,
    seed: int = 0,
    groups: NDArray[np.int64] | None = None,
    placement: Placement = "spread",
) -> Clients:
    """Draw the attackers among the clients.

    Args:
        client_ids: The m clients.
        fraction: Fraction of the clients, in [0, 0.4]; with ``group``, of the clients of one group.
            More than 0 is at least one client.
        seed: Decides which clients.
        groups: ``[m]`` the group of each client; None is one group.
        placement: ``spread`` over all groups, as evenly as their sizes allow; ``group``, all in
            the group of the first client that is drawn; or ``random``.

    Returns:
        Positions of the attackers, ascending.

    Raises:
        InputError: If the fraction is out of range.

    Examples:
        >>> ids, groups = [str(client) for client in range(8)], np.array([0, 0, 0, 0, 1, 1, 1, 1])
        >>> attackers = draw_attackers(ids, 0.25, groups=groups)
        >>> groups[attackers].tolist()
        [0, 1]
    """
    require(
        0 <= fraction <= MAX_FRACTION,
        f"the fraction of attackers must be in [0, {MAX_FRACTION}], not {fraction}: "
        "with more, no method can tell honest clients from corrupt ones",
    )
    if placement not in PLACEMENTS:
        raise unknown("placement", placement, PLACEMENTS)
    count = len(client_ids)
    draws = uniform(streams(Key(seed, "attackers"), client_words(client_ids))).numpy()
    groups = np.zeros(count, dtype=np.int64) if groups is None else groups
    order = np.argsort(draws, kind="stable")
    if placement == "group":
        order = order[groups[order] == groups[order[0]]]
    total = round(fraction * len(order))
    total = max(total, 1) if fraction else 0
    if placement == "spread":
        order = order[np.argsort(_shares(groups[order]), kind="stable")]
    return np.sort(order[:total])


def _shares(groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the fraction of its group that comes before each client: ``[m]``."""
    shares = np.zeros(len(groups))
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        shares[members] = np.arange(len(members)) / len(members)
    return shares
