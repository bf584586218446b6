"""A federation around a federation: who the clients are, and what they hold, stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from srfca.federation.base import Federation, Split, Wire


class Wrapped:
    """What does not depend on the questions; those who wrap a federation add the questions."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation

    @property
    def clients(self) -> Sequence[str]:
        """Stable ids, in order."""
        return self.federation.clients

    @property
    def sizes(self) -> Tensor:
        """``[m]`` training samples of each client."""
        return self.federation.sizes

    @property
    def splits(self) -> Sequence[Split]:
        """What the clients hold."""
        return self.federation.splits

    @property
    def layers(self) -> Mapping[str, slice]:
        """Where each layer lies in a row."""
        return self.federation.layers

    @property
    def wire(self) -> Wire:
        """What has gone over the wire."""
        return self.federation.wire

    def fingerprint(self) -> str:
        """Tells what the clients hold from other data."""
        return self.federation.fingerprint()

    def initial(self, seed: int) -> Tensor:
        """``[P]`` w0."""
        return self.federation.initial(seed)
