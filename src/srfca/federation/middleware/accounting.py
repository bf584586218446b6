"""Accounting: how often private clients were asked, for the guarantee that they have."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from srfca.federation.accountant import PrivacySpent, require_accountant
from srfca.federation.middleware.base import Middleware
from srfca.federation.privacy import STATISTICS, UPDATES
from srfca.federation.protocol import Federation
from srfca.federation.replies import Replies, T
from srfca.federation.requests import Request, Round


class Accounting(Middleware):
    """Count what clients are asked for, also if it is never answered: a reply may have been lost.

    Each entry of an update is one release, and so is each reply with losses, accuracies or shares,
    however many models they are of.

    Args:
        federation: Where requests are passed on to. Its clients are private if it has an attribute
            ``privacy`` that is not None.

    Raises:
        InputError: If clients are private, and dp-accounting is not installed.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> Accounting(fed).spent is None  # these clients are not private
        True
    """

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        if self.privacy is not None:
            require_accountant()
        self._updates = np.zeros(len(federation.client_ids), dtype=np.int64)
        self._statistics = np.zeros_like(self._updates)

    @property
    def answers_rounds(self) -> bool:
        """As the federation inside."""
        return self.federation.answers_rounds

    def ask(self, request: Request[T]) -> Replies[T]:
        """Pass a request on, and count it."""
        if isinstance(request, (*UPDATES, Round)):
            self._updates += np.bincount(request.clients, minlength=len(self._updates))
        elif isinstance(request, STATISTICS):
            self._statistics[np.unique(request.clients)] += 1
        return self.federation.ask(request)

    @property
    def spent(self) -> PrivacySpent | None:
        """What was revealed of a client at most; None if clients are not private."""
        if self.privacy is None:
            return None
        counts = (int(counts.max(initial=0)) for counts in (self._updates, self._statistics))
        return PrivacySpent.of(self.privacy, *counts)

    def state(self) -> dict[str, Tensor]:
        """Return what has been counted, so that a run can resume; nothing without privacy."""
        if self.privacy is None:
            return {}
        return {
            "updates": torch.tensor(self._updates),
            "statistics": torch.tensor(self._statistics),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a ``state``."""
        if not state:
            return
        self._updates, self._statistics = (
            state[name].numpy().copy() for name in ("updates", "statistics")
        )
