"""Notice between refreshes that clients have left the reach of their clusters."""

from __future__ import annotations

from collections import Counter
from logging import WARNING, getLogger

from srfca.flower.federation import FlowerFederation
from srfca.methods import Result
from srfca.methods.adaptation import drift_alarms

_log = getLogger("flwr").log

MAX_ALARMS = 3
"""Alarms of one client that cause a refresh; further ones are only logged."""


class DriftWatch:
    """Log an alarm for every client that leaves the reach of its cluster, once.

    A client for which no better cluster could be formed stays where it is. It does not raise
    another alarm until it has fitted again, so that it does not cause one refresh after another.
    One that comes and goes causes at most ``MAX_ALARMS`` refreshes.
    """

    def __init__(self) -> None:
        self._away: set[str] = set()
        self._alarms: Counter[str] = Counter()

    def check(self, federation: FlowerFederation, result: Result) -> bool:
        """Ask all clients for their losses, and return whether a refresh is due: one has left.

        Args:
            federation: The clients.
            result: The clusters.

        Raises:
            InputError: If clients are private.
        """
        federation.forget_losses()
        alarms = drift_alarms(result, federation)
        new = [alarm for alarm in alarms if alarm.client not in self._away]
        for alarm in new:
            _log(WARNING, "drift: %s", alarm)
        self._away = {alarm.client for alarm in alarms}
        self._alarms.update(alarm.client for alarm in new)
        return any(self._alarms[alarm.client] <= MAX_ALARMS for alarm in new)
