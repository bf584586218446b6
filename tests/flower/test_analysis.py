"""The answer of a run on Flower: the same as in a simulation."""

from __future__ import annotations

import numpy as np
import torch

from srfca.analysis import analyze
from srfca.federation import BootstrapLosses, DataMoments
from tests.flower.setup import (
    EVERYONE,
    SR_FCA,
    M,
    make_federation,
    make_grid,
    make_simulation,
    no_reply,
)


def test_an_analysis_is_that_of_a_simulation() -> None:
    federation, simulation = make_federation(), make_simulation()
    result = SR_FCA.fit(simulation, seed=1)
    analysis, expected = analyze(result, federation), analyze(result, simulation)
    assert analysis.verdict == "clusters"
    assert analysis.sentence() == expected.sentence()
    assert analysis.confidence is not None
    assert expected.confidence is not None
    for name in ("confidence", "margin", "stays", "memberships", "stability"):
        ours, other = (getattr(part.confidence, name) for part in (analysis, expected))
        np.testing.assert_allclose(ours, other, atol=1e-4)
    assert analysis.clusters()["differs"] == expected.clusters()["differs"]


def test_clients_that_do_not_reply_are_left_out() -> None:
    grid = make_grid()
    federation = make_federation(grid, timeout=0.2)
    grid.fault = no_reply("query.bootstrap_losses", 2)
    result = SR_FCA.fit(make_simulation(), seed=1)
    analysis = analyze(result, federation, differences=False)
    assert analysis.confidence is not None
    assert np.flatnonzero(np.isnan(analysis.confidence.confidence)).tolist() == [2]


def test_only_sums_and_moments_are_sent() -> None:
    """A reply has as many numbers as models and classes need, however many samples there are."""
    federation = make_federation()
    models = federation.initial_model(0).expand(2, -1).clone()
    models[1] += 1.0
    before = federation.traffic
    federation.ask(BootstrapLosses(EVERYONE, models, replicates=1000))
    resampled = federation.traffic - before
    assert resampled.bytes_up < M * (2 * 5 * 8 + 100)
    sums = federation.ask(DataMoments(EVERYONE)).values
    assert sums.shape == (M, 4, 1 + 2 * 6)
    assert (federation.traffic - before - resampled).bytes_up < M * (sums[0].numel() * 8 + 100)


def test_models_that_are_not_finite_are_not_sent() -> None:
    federation = make_federation()
    models = federation.initial_model(0).expand(2, -1).clone()
    models[1, 0] = torch.nan
    replies = federation.ask(BootstrapLosses(EVERYONE, models))
    assert replies.values.shape == (0, 2, 5)
    assert set(replies.missing) == set(range(M))
