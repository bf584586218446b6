"""Newcomers over Flower: the same as in a simulation, with few messages."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import InputError
from srfca.federation import LossMoments, OutputMoments
from srfca.flower.serving import place_unclustered
from srfca.testing.method_case import tensors_of
from tests.flower.setup import (
    DATA,
    EVERYONE,
    SR_FCA,
    M,
    change_replies,
    make_federation,
    make_grid,
    make_simulation,
    scale,
)


def test_statistics_and_assignments_are_those_of_a_simulation() -> None:
    federation, simulation = make_federation(), make_simulation()
    result = SR_FCA.fit(federation, seed=1).with_input_statistics(federation)
    expected = SR_FCA.fit(simulation, seed=1).with_input_statistics(simulation)
    tensors, expected_tensors = tensors_of(result), tensors_of(expected)
    assert tensors.keys() == expected_tensors.keys()
    for name in ("input_statistics/means", "input_statistics/counts", "input_statistics/alike"):
        assert torch.allclose(tensors[name].double(), expected_tensors[name].double(), atol=1e-4)
    for labels in (True, False):
        first = result.assign(federation, labels=labels)
        second = expected.assign(simulation, labels=labels)
        assert np.array_equal(first.labels, second.labels)
        np.testing.assert_allclose(first.scores, second.scores, atol=1e-2)
        np.testing.assert_allclose(first.confidence, second.confidence, atol=1e-3)


def test_a_client_that_fits_no_cluster_is_not_asked_again_about_the_same_models() -> None:
    grid = make_grid()
    federation = make_federation(grid)
    result = SR_FCA.fit(federation, seed=1)
    assert result.partition == DATA.truth
    place_unclustered(federation, result, [2, 5])
    asked = grid.log.count((2, "query.loss_moments"))
    place_unclustered(federation, result, [2, 5])
    assert grid.log.count((2, "query.loss_moments")) == asked
    federation.forget_losses()
    place_unclustered(federation, result, [2, 5])
    assert grid.log.count((2, "query.loss_moments")) == asked + 1


@pytest.mark.parametrize("factor", [torch.nan, -torch.inf])
def test_moments_that_are_not_numbers_are_refused(factor: float) -> None:
    grid = make_grid()
    federation = make_federation(grid)
    change_replies(grid, 5, "query.loss_moments", scale("moments", factor))
    result = SR_FCA.fit(federation, seed=1)
    assert {reply.client for reply in federation.missing} == {"5"}
    assert result.loss_limits is not None
    assert int(result.loss_limits.clients.sum()) == M - 1


def test_models_that_are_not_finite_are_not_sent() -> None:
    federation = make_federation()
    models = federation.initial_model(0).expand(2, -1).clone()
    models[1, 0] = torch.nan
    replies = federation.ask(LossMoments(EVERYONE, models, torch.ones(2)))
    assert replies.values.shape == (0, 2, 11)
    assert set(replies.missing) == set(range(M))


def test_requests_that_do_not_fit_are_refused() -> None:
    federation = make_federation()
    models = federation.initial_model(0).unsqueeze(0)
    with pytest.raises(InputError, match="at least one split"):
        federation.ask(OutputMoments(EVERYONE, models, ()))
    with pytest.raises(InputError, match="scales must be 1 positive numbers"):
        federation.ask(LossMoments(EVERYONE, models, -torch.ones(1)))
