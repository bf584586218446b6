"""Moments of samples by group, against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from srfca import InputError
from srfca.federation.moments import (
    MAX_COMPRESSED,
    ClientLosses,
    GroupMoments,
    client_losses,
    compress,
    group_moments,
    unpack_outputs,
)


def test_losses_are_compressed_by_their_scale() -> None:
    losses = torch.tensor([[0.5, 2.0, -2.0], [5.0, 20.0, -20.0]], dtype=torch.float64)
    values = compress(losses, torch.tensor([1.0, 10.0]))
    assert values[0, 0].item() == pytest.approx(math.asinh(1.5))
    assert torch.allclose(values[0], values[1])
    assert torch.allclose(values[:, 1], -values[:, 2])


def test_losses_that_are_not_finite_are_compressed_to_a_bound() -> None:
    losses = torch.tensor([[torch.nan, torch.inf, -torch.inf]], dtype=torch.float64)
    assert compress(losses, torch.ones(1)).tolist() == [
        [MAX_COMPRESSED, MAX_COMPRESSED, -MAX_COMPRESSED]
    ]


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_moments_by_group_agree_with_a_loop(data: st.DataObject) -> None:
    k, n, d, c, g = (data.draw(st.integers(1, high)) for high in (2, 12, 3, 3, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    values, owner, groups = (
        rng.normal(size=(k, n, d)),
        rng.integers(c, size=n),
        rng.integers(g, size=(k, n)),
    )
    x, of, inside = (torch.from_numpy(part) for part in (values, owner, groups))
    moments = group_moments(x, of, inside, c, g)
    for client in range(c):
        for model in range(k):
            scatter = np.zeros((d, d))
            for group in range(g):
                part = values[model, (owner == client) & (groups[model] == group)]
                assert moments.counts[client, model, group] == len(part)
                mean = part.mean(0) if len(part) else np.zeros(d)
                np.testing.assert_allclose(moments.means[client, model, group], mean, atol=1e-12)
                scatter += (part - mean).T @ (part - mean)
            np.testing.assert_allclose(moments.scatter[client, model], scatter, atol=1e-12)
    again = GroupMoments.unpack(moments.pack(), g, d)
    for name in ("counts", "means", "scatter"):
        assert torch.equal(getattr(again, name), getattr(moments, name))


def test_large_products_are_added_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    values, owner = torch.randn(2, 30, 3).double(), torch.arange(30) % 4
    groups = torch.arange(60).view(2, 30) % 3
    expected = group_moments(values, owner, groups, 4, 3)
    monkeypatch.setattr("srfca.federation.moments._PASS", 40)
    assert torch.allclose(group_moments(values, owner, groups, 4, 3).scatter, expected.scatter)


def test_what_clients_report_of_their_losses() -> None:
    losses = torch.tensor([[1.0, 3.0, 2.0, 5.0], [2.0, 2.0, 4.0, 1.0]], dtype=torch.float64)
    owner, labels = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1])
    reported = client_losses(losses, torch.ones(2), owner, labels, 2, 2)
    assert reported.mean.tolist() == [[2.0, 2.0], [3.5, 2.5]]
    # Client 0: model 0 is the first of two best; differences 1, -1. Client 1: model 1; -2, 4.
    assert reported.paired_variance.tolist() == [[0.0, 2.0], [18.0, 0.0]]
    assert reported.compressed.counts.tolist() == [[[1, 1], [1, 1]], [[0, 2], [0, 2]]]
    two, five = math.asinh(6.0), math.asinh(15.0)
    assert reported.compressed.means[1, 0, :, 0].tolist() == pytest.approx([0.0, (two + five) / 2])
    assert reported.compressed.scatter[1, 0].item() == pytest.approx((five - two) ** 2 / 2)
    values = reported.pack()
    assert values.shape == (2, 2, 7)
    assert torch.equal(ClientLosses.unpack(values).pack(), values)


def test_infinite_losses_are_reported_without_nan() -> None:
    losses = torch.tensor([[torch.nan, 1.0], [torch.inf, torch.inf]], dtype=torch.float64)
    reported = client_losses(
        losses,
        torch.ones(2),
        torch.zeros(2, dtype=torch.int64),
        torch.zeros(2, dtype=torch.int64),
        1,
        1,
    )
    assert reported.mean.tolist() == [[torch.inf, torch.inf]]
    assert not reported.pack().isnan().any()


@pytest.mark.parametrize("width", [2, 4])
def test_moments_of_another_shape_are_refused(width: int) -> None:
    with pytest.raises(InputError, match="have no shape"):
        ClientLosses.unpack(torch.zeros(1, 1, width))
    with pytest.raises(InputError, match="have no shape"):
        unpack_outputs(torch.zeros(1, 1, width))
