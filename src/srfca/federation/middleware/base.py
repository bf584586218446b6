"""The base class of middleware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from srfca.federation.privacy import Privacy
from srfca.federation.protocol import Federation
from srfca.federation.replies import Replies, T
from srfca.federation.requests import Request, Split
from srfca.models.architecture import Architecture


class Middleware:
    """A federation around a federation. Subclasses override ``ask``, and nothing else.

    A ``Round`` reaches ``ask`` as ``Train``, so that middleware sees every client's reply, unless a
    subclass sets ``answers_rounds``.

    Args:
        federation: Where requests are passed on to.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.federation import ClassCounts
        >>> class Printing(Middleware):
        ...     def ask(self, request):
        ...         print(request.name, "to", len(request.clients), "clients")
        ...         return self.federation.ask(request)
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> Printing(fed).ask(ClassCounts(range(4))).values.shape
        classcounts to 4 clients
        torch.Size([4, 10])
    """

    def __init__(self, federation: Federation) -> None:
        self.federation = federation

    @property
    def client_ids(self) -> Sequence[str]:
        """Stable ids of the clients, in order."""
        return self.federation.client_ids

    @property
    def sizes(self) -> Tensor:
        """``[m]`` number of training samples of each client."""
        return self.federation.sizes

    @property
    def splits(self) -> Sequence[Split]:
        """What the clients hold."""
        return self.federation.splits

    @property
    def layers(self) -> Mapping[str, slice]:
        """Where each trained layer lies in a row."""
        return self.federation.layers

    @property
    def architecture(self) -> Architecture | None:
        """What a row needs to become a module."""
        return self.federation.architecture

    @property
    def schema(self) -> Any:
        """How samples were made from a table; None if the federation does not know."""
        return getattr(self.federation, "schema", None)

    @property
    def negative_losses(self) -> bool:
        """Whether losses may be negative; False if the federation does not say."""
        return bool(getattr(self.federation, "negative_losses", False))

    @property
    def privacy(self) -> Privacy | None:
        """How much clients reveal; None if they are not private, or the federation does not say."""
        return getattr(self.federation, "privacy", None)

    @property
    def answers_rounds(self) -> bool:
        """Whether ``ask`` takes a ``Round``."""
        return False

    def fingerprint(self) -> str:
        """Return a digest of what the clients hold."""
        return self.federation.fingerprint()

    def initial_model(self, seed: int) -> Tensor:
        """Return w0: ``[P]``.

        Args:
            seed: Decides it.
        """
        return self.federation.initial_model(seed)

    def ask(self, request: Request[T]) -> Replies[T]:
        """Pass a request on.

        Args:
            request: Any request.

        Returns:
            The replies of the federation inside.
        """
        return self.federation.ask(request)
