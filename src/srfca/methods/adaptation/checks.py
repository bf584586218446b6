"""What clusters must be like to be adapted."""

from __future__ import annotations

from srfca.errors import require
from srfca.federation.protocol import Federation
from srfca.methods._common.result import Result


def check_clusters(result: Result, federation: Federation) -> None:
    """Raise an ``InputError`` unless a result has clusters of the federation's clients."""
    require(
        result.clustered and result.mixture_weights is None and result.personal is None,
        f"{result.method} has no cluster models to adapt",
    )
    require(
        hasattr(federation, "ask"),
        f"a federation is needed, such as Simulation(data, model), not {federation!r:.100}",
    )
    privacy = getattr(federation, "privacy", None)
    require(
        privacy == (None if result.privacy is None else result.privacy.privacy),
        "the clients must be as private as they were when the clusters were found",
    )
    require(
        tuple(federation.client_ids) == tuple(result.client_ids),
        "the federation must have the clients of the result, in the same order: assign new clients "
        "with Result.assign first",
    )
