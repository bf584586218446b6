"""Samples that clients give away over Flower: only if their own app says so."""

from __future__ import annotations

import pytest
import torch

from srfca import InputError
from srfca.federation import Outputs, SharedSamples
from srfca.methods import DAPPER
from tests.flower.setup import EVERYONE, LOCAL, M, make_federation, make_grid


def test_a_client_gives_away_nothing_by_default() -> None:
    federation = make_federation(make_grid(share=0))
    replies = federation.ask(SharedSamples(EVERYONE, 1))
    assert sorted(replies.missing) == list(range(M))
    assert "this client shares 0 samples, not 1" in replies.missing[0]
    with pytest.raises(InputError, match="no client shares samples"):
        DAPPER(local=LOCAL).fit(federation)


def test_a_client_gives_away_no_more_than_its_app_says() -> None:
    federation = make_federation(make_grid(share=3))
    assert not federation.ask(SharedSamples(EVERYONE, 3)).missing
    assert len(federation.ask(SharedSamples(EVERYONE, 4)).missing) == M


def test_inputs_that_are_not_numbers_are_not_sent() -> None:
    federation = make_federation(make_grid())
    models = torch.stack([federation.initial_model(0)] * M)
    replies = federation.ask(Outputs(EVERYONE, models, torch.full((2, 6), torch.nan)))
    assert len(replies.missing) == M
    broken = models.clone()
    broken[2] = torch.inf
    replies = federation.ask(Outputs(EVERYONE, broken, torch.ones(2, 6)))
    assert list(replies.missing) == [2]
    assert replies.values.shape == (M - 1, 2, 4)
