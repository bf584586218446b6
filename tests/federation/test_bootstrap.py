"""Losses compared by resampling, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from srfca import InputError
from srfca.federation.bootstrap import (
    MAX_LOSS,
    ComparedLosses,
    bootstrap_streams,
    compare_losses,
)
from srfca.random import client_words


def stream(name: str = "ann", seed: int = 0) -> torch.Tensor:
    return bootstrap_streams(seed, client_words([name]))[0]


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(0, 1000))
def test_means_shares_and_covariances(k: int, n: int, seed: int) -> None:
    losses = np.random.default_rng(seed).exponential(size=(k, n))
    compared = compare_losses(torch.from_numpy(losses), stream(), 40)
    np.testing.assert_allclose(compared.mean[0], losses.mean(1))
    assert compared.share.sum().item() == pytest.approx(1.0)
    assert compared.num_samples.tolist() == [n]
    expected = np.cov(losses).reshape(k, k) if n > 1 else np.zeros((k, k))
    np.testing.assert_allclose(compared.covariance[0], expected, atol=1e-12)
    unpacked = ComparedLosses.unpack(compared.pack())
    for name in ("mean", "share", "num_samples", "covariance"):
        assert torch.equal(getattr(unpacked, name), getattr(compared, name))


def test_the_share_is_the_probability_of_a_better_mean() -> None:
    """Two samples, each favors another model: three of four resamples favor or tie the first."""
    losses = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    share = compare_losses(losses, stream(), 4000).share[0, 0].item()
    assert share == pytest.approx(0.75, abs=0.03)


def test_draws_depend_on_seed_and_client_alone() -> None:
    losses = torch.rand(2, 7, generator=torch.Generator().manual_seed(1))
    first, again = (compare_losses(losses, stream(), 50).share for _ in range(2))
    assert torch.equal(first, again)
    others = [compare_losses(losses, s, 50).share for s in (stream("bob"), stream(seed=1))]
    assert any(not torch.equal(first, other) for other in others)


def test_losses_that_are_not_finite_are_large() -> None:
    losses = torch.tensor([[torch.inf, 1.0], [torch.nan, 1.0], [2.0, 2.0]])
    compared = compare_losses(losses, stream(), 20)
    assert compared.pack().isfinite().all()
    assert compared.mean[0, :2].tolist() == [MAX_LOSS / 2] * 2
    assert compared.mean[0].argmin() == 2


def test_other_shapes_are_refused() -> None:
    with pytest.raises(InputError, match=r"compared losses have no shape \(2, 3, 5\)"):
        ComparedLosses.unpack(torch.zeros(2, 3, 5))
