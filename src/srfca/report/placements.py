"""Where newcomers were placed, and how surely, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from srfca.methods._common.assignment import COIN_TOSS, DOUBTFUL, Assignment
from srfca.methods._common.input_statistics import CONFIDENT, INPUT_LIMIT


@dataclass(frozen=True)
class Placement:
    """Where a newcomer was placed.

    Args:
        client: Its name.
        cluster: Its cluster, None if none fits.
        nearest: The cluster that is nearest to it; None if it did not reply.
        confidence: How sure the nearest cluster is against the next one, from 0 to 1; None if there
            is no next one.
        next: The next cluster, None if there is only one.
        margin: How much larger the loss of the next cluster's model is, relative to the larger one;
            without labels, how many standard deviations less alike its inputs are.
        labels: Whether it was placed by labels.
        note: What a person should know of it, empty if there is nothing.
    """

    client: str
    cluster: int | None
    nearest: int | None
    confidence: float | None
    next: int | None
    margin: float | None
    labels: bool
    note: str


def placements(
    client_ids: Sequence[str], assignment: Assignment, labels: bool, limit: float | None = None
) -> list[Placement]:
    """Return where newcomers were placed.

    Args:
        client_ids: The newcomers.
        assignment: Their clusters.
        labels: Whether they were placed by labels.
        limit: The score beyond which a newcomer with labels belongs to no cluster.
    """
    distances = assignment.losses.numpy() if labels else assignment.scores
    placed = []
    for client, name in enumerate(client_ids):
        label, confidence = int(assignment.labels[client]), float(assignment.confidence[client])
        if not isfinite(confidence):
            placed.append(Placement(name, None, None, None, None, None, labels, "did not reply"))
            continue
        order = np.argsort(distances[client], kind="stable")
        nearest, following = int(order[0]), int(order[1]) if len(order) > 1 else None
        margin = None
        if following is not None:
            margin = _margin(distances[client, nearest], distances[client, following], labels)
        score = float(assignment.scores[client, nearest])
        note = _note(label, nearest, following, confidence, score, labels, limit)
        cluster = label if label >= 0 else None
        sure = None if following is None else confidence
        placed.append(Placement(name, cluster, nearest, sure, following, margin, labels, note))
    return placed


def _margin(nearest: float, following: float, relative: bool) -> float:
    """Return how much further the next cluster is.

    >>> _margin(0.25, 1.0, True), _margin(0.25, 1.0, False)
    (0.75, 0.75)
    >>> _margin(1.0, 4.0, True), _margin(1.0, 4.0, False)
    (0.75, 3.0)
    """
    larger = max(abs(nearest), abs(following)) if relative else 1.0
    return float((following - nearest) / larger) if larger else 0.0


def _note(
    label: int,
    nearest: int,
    following: int | None,
    confidence: float,
    score: float,
    labels: bool,
    limit: float | None,
) -> str:
    """Say what a person should know of a placement."""
    limit = limit if labels else INPUT_LIMIT
    if label < 0 and labels and limit == 0:  # no cluster has two clients to learn a limit from
        return (
            f"fits no cluster: worse off with the model of cluster {nearest} than its only client"
        )
    if label < 0 and limit is not None and score > limit:
        return (
            f"fits no cluster: {score:.1f} standard deviations from the clients of cluster "
            f"{nearest}, and more than {limit:g} is too many"
        )
    if following is None:
        return ""
    between = f"nearly a coin toss between clusters {nearest} and {following}"
    if not labels and confidence < CONFIDENT:
        return f"{between}: their inputs look alike, labels would tell"
    if labels and confidence < COIN_TOSS:
        return f"{between}: more samples would tell"
    if labels and confidence < DOUBTFUL:
        return f"doubtful: cluster {following} is possible, and more samples would tell"
    return ""
