"""When drift alarms cause a refresh."""

from __future__ import annotations

from typing import Any

import pytest

from srfca.flower import drift_watch
from srfca.flower.drift_watch import MAX_ALARMS, DriftWatch
from srfca.methods.adaptation import DriftAlarm


class Clients:
    """A federation that forgets losses."""

    def forget_losses(self) -> None:
        """Do nothing."""


def test_a_client_that_comes_and_goes_does_not_cause_refreshes_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away: list[str] = []
    monkeypatch.setattr(
        drift_watch,
        "drift_alarms",
        lambda *_: tuple(DriftAlarm(client, 0, 9.0, 1.0, None) for client in away),
    )
    watch, clients = DriftWatch(), Clients()
    any_result: Any = None

    def refreshes(*names: str) -> bool:
        away[:] = names
        return watch.check(clients, any_result)  # type: ignore[arg-type]

    assert [(refreshes("a"), refreshes())[0] for _ in range(MAX_ALARMS + 2)] == [
        *[True] * MAX_ALARMS, False, False,
    ]  # fmt: skip
    assert refreshes("a", "b"), "other clients are not affected"
    assert not refreshes("a", "b")
