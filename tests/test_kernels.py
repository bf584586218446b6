"""The Triton kernels: on a GPU where there is one, else through Triton's interpreter."""

from __future__ import annotations

import os
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from srfca.models import NormReLU

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # triton reads it when it is imported

pytest.importorskip("triton", reason="needs triton, which is for Linux")

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # torch's own


@st.composite
def layers(draw: st.DrawFn) -> tuple[NormReLU, Tensor]:
    """A layer, and images that it takes, with values around any mean."""
    pool, count = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    channels = draw(st.sampled_from([1, 5, 64, 70]))
    height, width = (pool * draw(st.integers(2, 4)) for _ in range(2))
    chance = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    mean = draw(st.sampled_from([0.0, -3.0, 30.0]))
    x = torch.randn(count, channels, height, width, generator=chance) * 2 + mean
    layer = NormReLU(channels, pool)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(channels, generator=chance))
        layer.bias.copy_(torch.randn(channels, generator=chance))
    return layer.to(DEVICE), x.to(DEVICE)


def passed(layer: NormReLU, x: Tensor, slopes: Tensor, fused: bool) -> list[Tensor]:
    """Output, gradients for ``slopes``, and buffers of a layer."""
    assert layer.running_mean is not None
    assert layer.running_var is not None
    layer.reset_running_stats()
    x = x.clone().requires_grad_()
    few = patch("srfca.models.norm_relu_triton._PARTS", 4)
    with few, patch.object(layer, "_fuses", return_value=fused):
        out = layer(x)
        gradients = torch.autograd.grad(out, (x, layer.weight, layer.bias), slopes.to(out))
    return [t.detach().clone() for t in (out, *gradients, layer.running_mean, layer.running_var)]


def slopes_for(layer: NormReLU, x: Tensor, gap: float) -> Tensor:
    """Slopes of the output, zero where rounding decides: at the ReLU, which value is largest."""
    pool, (n, c, h, w) = layer.pool, x.shape
    normed = nn.functional.batch_norm(
        x.double(), None, None, layer.weight.double(), layer.bias.double(), training=True
    )
    windows = normed.view(n, c, h // pool, pool, w // pool, pool).transpose(3, 4).flatten(4)
    largest = windows.sort(-1, descending=True).values.detach()
    clear = largest[..., 0].abs() > gap
    if pool > 1:
        clear &= largest[..., 0] - largest[..., 1] > gap
    chance = torch.Generator().manual_seed(0)
    return torch.randn(clear.shape, generator=chance).to(x.device) * clear


def apart(found: Tensor, expected: Tensor) -> float:
    """How far they are from each other, for what they are."""
    assert found.shape == expected.shape
    return float((found - expected).double().norm() / (expected.double().norm() + 0.01))


@pytest.mark.parametrize(
    ("dtype", "gap", "near"), [(torch.float32, 1e-3, 1e-4), (torch.bfloat16, 0.1, 0.02)]
)
@given(case=layers())
@settings(max_examples=20)
def test_norm_relu_and_pool_in_one_are_the_layers(
    case: tuple[NormReLU, Tensor], dtype: torch.dtype, gap: float, near: float
) -> None:
    layer, x = case[0], case[1].to(dtype)
    slopes = slopes_for(layer, x, gap).to(dtype)
    found, again = (passed(layer, x, slopes, fused=True) for _ in range(2))
    assert all(map(torch.equal, found, again)), "the same bits"
    expected = passed(layer.double(), x.double(), slopes, fused=False)
    assert max(map(apart, found, expected)) < near


def test_norm_relu_and_pool_pass_on_what_is_not_a_number() -> None:
    x = torch.randn(2, 4, 4, 4, device=DEVICE)
    x[0, 1, 2, 3] = torch.nan
    out = passed(NormReLU(4, 2).to(DEVICE), x, torch.ones(2, 4, 2, 2), fused=True)[0]
    assert out.isnan().any(3).any(2).any(0).tolist() == [False, True, False, False]


@given(st.integers(1, 24), st.sampled_from([1, 33, 300]), st.integers(0, 999), st.data())
@settings(max_examples=30)
def test_ranks_are_those_of_a_sort(count: int, length: int, seed: int, data: st.DataObject) -> None:
    from srfca import ranks_triton

    low = data.draw(st.integers(0, (count - 1) // 2))
    high = data.draw(st.integers(count // 2 + 1, count))
    rows = torch.randn(count, length, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
    rows[0, ::3] = torch.nan
    rows[-1, ::2] = -torch.inf
    found = ranks_triton.rank_mean(rows, low, high)
    expected = rows.sort(0).values[low:high].mean(0)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
