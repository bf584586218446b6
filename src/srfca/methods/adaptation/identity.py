"""Numbers of clusters that stay the same over adaptations."""

from __future__ import annotations

from typing import Any

from srfca.methods._common.result import Result

CLUSTER_IDS = "cluster_ids"
"""Note of a stage: the id of each model's cluster."""
NEXT_ID = "next_cluster_id"
"""Note of a stage: the id of the next new cluster."""


def cluster_ids(result: Result) -> tuple[int, ...]:
    """Return the id of each model's cluster: ``[k]``.

    Labels are positions in ``Result.models``, which an adaptation may reorder. A cluster keeps its
    id as long as its model is kept, and no id is given twice. Before the first adaptation ids are
    labels.
    """
    notes = _last_notes(result)
    return tuple(range(len(result.models))) if notes is None else tuple(notes[CLUSTER_IDS])


def identity_notes(result: Result, order: list[int]) -> dict[str, Any]:
    """Return the ids after an adaptation, as notes of its stage.

    Args:
        result: The clusters before.
        order: ``[k]`` the position before of each model after; those from the number of models
            before on are of new clusters.
    """
    before, notes = cluster_ids(result), _last_notes(result)
    next_id = len(before) if notes is None else int(notes[NEXT_ID])
    ids = []
    for position in order:
        if position < len(before):
            ids.append(before[position])
        else:
            ids.append(next_id)
            next_id += 1
    return {CLUSTER_IDS: ids, NEXT_ID: next_id}


def _last_notes(result: Result) -> dict[str, Any] | None:
    """Return the notes of the last adaptation, or None."""
    return next((dict(s.notes) for s in reversed(result.history) if CLUSTER_IDS in s.notes), None)
