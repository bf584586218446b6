from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca.errors import InputError
from srfca.federation import DropReplies, Losses, Subset, Train
from srfca.random import Key
from tests.methods.helpers import LOCAL, regressions


def test_clients_of_a_subset_train_as_in_the_federation() -> None:
    federation = regressions(6)
    part = Subset(federation, [4, 1])
    starts = federation.initial_model(0).repeat(2, 1)
    rows = part.ask(Train(np.array([0, 1]), starts, LOCAL, Key(0, "x"))).values
    expected = federation.ask(Train(np.array([4, 1]), starts, LOCAL, Key(0, "x"))).values
    assert torch.equal(rows, expected)
    assert part.client_ids == ("4", "1")
    assert part.sizes.tolist() == federation.sizes[[4, 1]].tolist()
    assert part.fingerprint() != federation.fingerprint()


def test_a_subset_may_start_from_another_model() -> None:
    federation = regressions(4)
    start = torch.arange(5.0, dtype=torch.float64)
    assert torch.equal(Subset(federation, [0], start).initial_model(3), start)
    same = Subset(federation, [0]).initial_model(3)
    assert torch.equal(same, federation.initial_model(3))


def test_missing_replies_are_those_of_the_subset() -> None:
    federation = DropReplies(regressions(6), 1.0)
    replies = Subset(federation, [5, 2]).ask(
        Losses(np.array([1]), federation.initial_model(0)[None])
    )
    assert replies.missing == {1: "dropped"}
    assert len(replies.values) == 0


@pytest.mark.parametrize("clients", [[0, 0], [4], [-1]])
def test_clients_must_be_different_and_exist(clients: list[int]) -> None:
    with pytest.raises(InputError, match="different positions from 0 to 3"):
        Subset(regressions(4), clients)
