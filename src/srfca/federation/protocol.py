"""The seam between methods and clients: a federation is the holder of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from srfca.federation.replies import Replies, T
from srfca.federation.requests import Request, Split
from srfca.models.architecture import Architecture


class Federation(Protocol):
    """The holder of the clients' data. Methods see nothing else of the clients.

    ``Simulation`` and ``srfca.flower.FlowerFederation`` are two; ``srfca.testing.check_federation``
    checks one of your own.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed: Federation = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> fed.client_ids, fed.splits, fed.layers
        (('0', '1', '2', '3'), ('train', 'validation', 'test'), {'1': slice(0, 650, None)})
    """

    @property
    def client_ids(self) -> Sequence[str]:
        """Stable ids of the m clients, in order."""
        ...

    @property
    def sizes(self) -> Tensor:
        """``[m]`` number of training samples of each client, without validation samples."""
        ...

    @property
    def splits(self) -> Sequence[Split]:
        """What the clients hold: ``train``, and perhaps ``validation`` and ``test``."""
        ...

    @property
    def layers(self) -> Mapping[str, slice]:
        """Where each trained layer lies in a row, from the inputs to the outputs."""
        ...

    @property
    def architecture(self) -> Architecture | None:
        """What a row needs to become a module; None if that is not known here."""
        ...

    @property
    def answers_rounds(self) -> bool:
        """Whether ``ask`` takes a ``Round``; otherwise callers send ``Train`` and aggregate."""
        ...

    def fingerprint(self) -> str:
        """Return a digest of what the clients hold, empty if that is not known here."""
        ...

    def initial_model(self, seed: int) -> Tensor:
        """Return w0, the common start: ``[P]``.

        Args:
            seed: Decides it.
        """
        ...

    def ask(self, request: Request[T]) -> Replies[T]:
        """Send a request to its clients, and return their replies.

        Args:
            request: Any request; a ``Round`` only if ``answers_rounds``.

        Returns:
            The answers that came, and the reason for each one that did not.

        Raises:
            InputError: If the request does not fit the federation.
        """
        ...
