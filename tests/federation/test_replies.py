"""Replies: the answers that came, and why others did not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import InputError
from srfca.federation import ClientScores, Replies, Traffic
from srfca.federation.replies import as_clients
from tests.asking import positions

ASKED = [3, 0, 3, 5]


def replies_of(requested: list[int]) -> Replies[torch.Tensor]:
    """The reply of each entry is its position in the request."""
    return Replies(positions(requested), torch.arange(float(len(requested))).unsqueeze(1))


def test_every_reply_came() -> None:
    replies = replies_of(ASKED)
    assert replies.clients.tolist() == ASKED
    assert replies.answered.tolist() == [True] * 4
    assert replies.fill(torch.full((4, 1), -1.0)) is replies.values


@given(
    requested=st.lists(st.integers(0, 5), max_size=8),
    lost=st.sets(st.integers(0, 7)),
    late=st.sets(st.integers(0, 7)),
)
def test_missing_replies(requested: list[int], lost: set[int], late: set[int]) -> None:
    replies = replies_of(requested).without(lost, "lost").without(late, "late")
    answered = [client not in lost | late for client in requested]
    assert replies.answered.tolist() == answered
    assert replies.requested.tolist() == requested
    assert replies.clients.tolist() == [
        c for c, came in zip(requested, answered, strict=True) if came
    ]
    expected = [float(entry) for entry, came in enumerate(answered) if came]
    assert replies.values.flatten().tolist() == expected
    reasons = dict.fromkeys(late & set(requested), "late") | dict.fromkeys(
        lost & set(requested), "lost"
    )
    assert replies.missing == reasons, "clients that were not asked are not missing"
    filled = replies.fill(torch.full((len(requested), 1), -1.0)).flatten().tolist()
    assert filled == [float(entry) if came else -1.0 for entry, came in enumerate(answered)]


def test_scores_of_missing_clients() -> None:
    scores = ClientScores(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.25]), torch.tensor([3, 4]))
    replies = Replies(positions([4, 2]), scores).without([4], "lost")
    assert replies.values.loss.tolist() == [2.0]
    filled = replies.fill(torch.nan)
    assert filled.accuracy is not None
    assert filled.loss.tolist()[1] == 2.0
    assert filled.accuracy.tolist()[1] == 0.25
    assert filled.num_samples.tolist() == [0, 4]
    assert bool(filled.loss[0].isnan())
    assert bool(filled.accuracy[0].isnan())
    regression = Replies(
        positions([1]), ClientScores(scores.loss[:1], None, scores.num_samples[:1])
    )
    assert regression.without([1], "lost").fill(0.0).accuracy is None


def test_scores_where() -> None:
    a = ClientScores(torch.tensor([1.0, 2.0]), torch.tensor([0.1, 0.2]), torch.tensor([3, 4]))
    b = ClientScores(torch.tensor([5.0, 6.0]), torch.tensor([0.5, 0.6]), torch.tensor([3, 4]))
    mixed = a.where(torch.tensor([True, False]), b)
    assert mixed.loss.tolist() == [1.0, 6.0]
    assert mixed.accuracy is not None
    assert mixed.accuracy.tolist() == pytest.approx([0.1, 0.6])
    assert (
        a.where(torch.tensor([True, True]), ClientScores(b.loss, None, b.num_samples)).accuracy
        is None
    )
    assert len(mixed) == 2


def test_traffic_adds_and_subtracts() -> None:
    a, b = Traffic(1, 2, 3), Traffic(10, 20, 30)
    assert a + b == Traffic(11, 22, 33)
    assert a + b - b == a


def test_clients_are_a_list_of_positions() -> None:
    assert as_clients(range(3)).tolist() == as_clients([0, 1, 2]).tolist() == [0, 1, 2]
    assert as_clients(iter([2, 1])).dtype == np.int64
    with pytest.raises(InputError, match=r"list of positions, not of shape \(1, 2\)"):
        as_clients(np.array([[0, 1]]))
