"""What the clients of a federation must agree on: the majority decides.

A client says itself what its data is like. One that says something else than most others must not
decide what all of them can be asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from srfca.flower.client_info import ClientInfo


@dataclass(frozen=True)
class Agreement:
    """What most clients say about their data and their model.

    Args:
        traits: Values by name. What no strict majority agrees on is not in it, and is not judged.
    """

    traits: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, clients: Iterable[ClientInfo]) -> Agreement:
        """Return what more than half of the clients agree on.

        Examples:
            >>> clients = [ClientInfo(str(n), {"train": 5}, n // 2, True, False) for n in (5, 2, 3)]
            >>> agreement = Agreement.of(clients)
            >>> [agreement.problem(client) for client in clients]
            ['it has features = 2, but most clients have 1', '', '']
        """
        values = [_traits(client) for client in clients]
        traits = {}
        for name in values[0] if values else ():
            [(value, count)] = Counter(traits_of[name] for traits_of in values).most_common(1)
            if 2 * count > len(values):
                traits[name] = value
        return cls(traits)

    def problem(self, client: ClientInfo) -> str:
        """Return what a client says that most do not, the empty string if nothing."""
        for name, value in _traits(client).items():
            expected = self.traits.get(name, value)
            if value == expected:
                continue
            if name in ("validation", "test"):
                if expected:
                    return f"it has no {name} samples, but most clients do"
            else:
                return f"it has {name} = {value}, but most clients have {expected}"
        return ""


def _traits(client: ClientInfo) -> dict[str, object]:
    """Return what a client says that it should have in common with the others."""
    return {
        "validation": "validation" in client.sizes,
        "test": "test" in client.sizes,
        "features": client.num_features,
        "classes": client.has_classes,
        "outputs": client.num_outputs,
        "groups": client.num_label_groups,
        "num_classes": client.num_classes,
        "columns": client.num_columns,
        "signature": client.signature,
        "privacy": client.privacy,
    }
