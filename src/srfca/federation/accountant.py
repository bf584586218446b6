"""The accountant: the epsilon of a client's releases together.

It is that of dp-accounting's privacy loss distributions, which is tight. Where it is in the
thousands, and no protection, a looser bound by Renyi divergences is enough. No amplification by
sampling is claimed: the server, from which updates are protected, knows which clients take part in
a round, and an update is clipped as a whole, so that batches do not hide a sample.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from math import inf, log, sqrt
from typing import Any

from srfca.errors import require
from srfca.federation.privacy import Privacy

_RELATIVE_ERROR = 1e-4
"""Epsilon is rounded up by about this fraction, and by at least as much in absolute terms."""

_NO_PROTECTION = 1000.0
"""An epsilon from which on a looser bound is enough."""


@dataclass(frozen=True)
class PrivacySpent:
    """What a run has revealed of a client's data, at most.

    Args:
        privacy: How clients bound it.
        updates: The most updates that a client was asked for.
        statistics: The most replies with losses, accuracies or shares.
        epsilon: Epsilon of both together, at ``privacy.delta``; infinite without noise.

    Examples:
        >>> spent = PrivacySpent(Privacy(), updates=1, statistics=0, epsilon=4.5)
        >>> PrivacySpent.from_json(spent.to_json()) == spent
        True
    """

    privacy: Privacy
    updates: int
    statistics: int
    epsilon: float

    @classmethod
    def of(cls, privacy: Privacy, updates: int, statistics: int) -> PrivacySpent:
        """Return what these releases reveal together.

        Args:
            privacy: How clients bound it.
            updates: The most updates that a client was asked for.
            statistics: The most replies with losses, accuracies or shares.
        """
        return cls(privacy, updates, statistics, epsilon(privacy, updates, statistics))

    def __str__(self) -> str:
        """Return a sentence to read."""
        return (
            f"Privacy: epsilon {self.epsilon:.4g} at delta {self.privacy.delta:g} for any change "
            f"of a client's data ({self.updates} updates and {self.statistics} replies with losses "
            "of a client)."
        )

    def to_json(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {
            "privacy": asdict(self.privacy),
            "updates": self.updates,
            "statistics": self.statistics,
            "epsilon": None if self.epsilon == inf else self.epsilon,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> PrivacySpent:
        """Return what ``to_json`` returned.

        Args:
            content: What ``to_json`` returned.

        Raises:
            InputError: If a value is not allowed.
        """
        spent = inf if content["epsilon"] is None else content["epsilon"]
        counts = (content["updates"], content["statistics"])
        require(
            all(type(count) is int and count >= 0 for count in counts) and spent >= 0,
            "what a run has revealed must be numbers of at least 0",
        )
        return cls(Privacy(**content["privacy"]), *counts, float(spent))


@cache
def epsilon(privacy: Privacy, updates: int, statistics: int) -> float:
    """Return the epsilon of a client's releases at ``privacy.delta``.

    Replies lie in a ball of radius 1, in units of what noise is a multiple of. Two data sets of a
    client change each by at most the diameter, 2.

    Args:
        privacy: How the client bounds them.
        updates: How many updates it releases.
        statistics: How many replies with losses, accuracies or shares.

    Raises:
        InputError: If dp-accounting is not installed.
    """
    releases = [
        (noise / 2, count)
        for noise, count in (
            (privacy.update_noise, updates), (privacy.loss_noise, statistics),
        )
        if count
    ]  # fmt: skip
    if not releases:
        return 0.0
    if any(noise == 0 for noise, _ in releases):
        return inf
    require_accountant()
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    shift = sqrt(sum(count / noise**2 for noise, count in releases))
    scale = shift**2 / 2 + shift * sqrt(2 * log(1 / privacy.delta))
    accountant = (
        PLDAccountant(value_discretization_interval=_RELATIVE_ERROR * max(1.0, scale))
        if scale < _NO_PROTECTION
        else RdpAccountant()
    )
    for noise, count in releases:
        accountant.compose(GaussianDpEvent(noise), count)
    return float(accountant.get_epsilon(privacy.delta))


def require_accountant() -> None:
    """Raise an ``InputError`` unless dp-accounting is installed."""
    require(
        find_spec("dp_accounting") is not None,
        "a run with privacy needs dp-accounting: install it with pip install 'srfca[privacy]'",
    )
