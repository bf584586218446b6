"""Notice between refreshes that clients have left the reach of their clusters."""

from __future__ import annotations

from logging import WARNING, getLogger

from srfca.flower.federation import FlowerFederation
from srfca.methods import Result
from srfca.methods.adaptation import drift_alarms

_log = getLogger("flwr").log


class DriftWatch:
    """Log an alarm for every client that leaves the reach of its cluster, once.

    A client for which no better cluster could be formed stays where it is. It does not raise
    another alarm until it has fitted again, so that it does not cause one refresh after another.
    """

    def __init__(self) -> None:
        self._away: set[str] = set()

    def check(self, federation: FlowerFederation, result: Result) -> bool:
        """Ask all clients for their losses, and return whether one has left since the last check.

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
        return bool(new)
