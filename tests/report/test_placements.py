"""What is said of newcomers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca.methods._common.assignment import Assignment
from srfca.report.placements import placements


def assignment(
    labels: list[int], losses: list[list[float]], scores: list[list[float]], confidence: list[float]
) -> Assignment:
    return Assignment(
        np.array(labels), torch.tensor(losses, dtype=torch.float64), np.array(scores),
        np.array(confidence), tuple(str(client) for client in range(len(labels))),
    )  # fmt: skip


def test_placements_by_losses_are_described() -> None:
    given = assignment(
        [1, 0, -1, -1],
        [[2.0, 0.5, 1.0], [0.50, 0.52, 4.0], [3.0, 2.0, 9.0], [np.nan] * 3],
        [[9.0, 0.0, 4.0], [0.0, 0.1, 6.0], [8.0, 7.5, 9.0], [np.nan] * 3],
        [0.999, 0.55, 0.9, np.nan],
    )
    sure, unsure, outside, absent = placements(["a", "b", "c", "d"], given, True, 4.25)
    assert (sure.cluster, sure.next, sure.margin, sure.note) == (1, 2, 0.5, "")
    assert unsure.margin == pytest.approx(0.02 / 0.52)
    assert unsure.cluster == 0
    assert unsure.note == "nearly a coin toss between clusters 0 and 1: more samples would tell"
    assert (outside.cluster, outside.nearest) == (None, 1)
    assert outside.note.startswith("fits no cluster: 7.5 standard deviations from the clients of")
    assert (absent.cluster, absent.confidence, absent.note) == (None, None, "did not reply")


def test_placements_by_inputs_are_described() -> None:
    unknown = [[np.nan] * 2] * 3
    given = assignment([0, -1, -1], unknown, [[0.1, 5.1], [1.0, 1.1], [8.0, 9.0]], [1.0, 0.5, 1.0])
    placed, alike, outside = placements(["a", "b", "c"], given, False)
    assert (placed.cluster, placed.margin, placed.note) == (0, 5.0, "")
    assert "coin toss between clusters 0 and 1: their inputs look alike" in alike.note
    assert outside.note.endswith("of cluster 0, and more than 3 is too many")


def test_a_single_cluster_has_no_next_one() -> None:
    [only] = placements(["a"], assignment([0], [[1.0]], [[0.2]], [1.0]), True, 4.25)
    assert (only.cluster, only.next, only.margin, only.note) == (0, None, None, "")
    assert only.confidence is None, "there is no other cluster to compare with"
    [no_limits] = placements(["a"], assignment([0], [[1.0]], [[np.nan]], [1.0]), True)
    assert no_limits.note == ""


def test_a_newcomer_among_single_clients_is_told_why_it_fits_none() -> None:
    given = assignment([-1], [[1.0, 2.0]], [[2.5, 4.0]], [0.9])
    [outside] = placements(["a"], given, True, 0.0)
    assert outside.note == (
        "fits no cluster: worse off with the model of cluster 0 than its only client"
    )


def test_a_doubtful_placement_names_the_next_cluster() -> None:
    [doubtful] = placements(["a"], assignment([0], [[0.5, 0.6]], [[0.0, 0.1]], [0.7]), True, 4.25)
    assert doubtful.note == "doubtful: cluster 1 is possible, and more samples would tell"
