"""The Triton kernels of ``NormReLU``."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from srfca.models import NormReLU
from tests.triton_device import DEVICE

pytest.importorskip("triton", reason="needs triton, which is for Linux")

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # torch's own


@st.composite
def layers(draw: st.DrawFn) -> tuple[NormReLU, Tensor]:
    """A layer, and images for it, with values around any mean."""
    pool, count = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    channels = draw(st.sampled_from([1, 5, 64, 70]))
    height, width = (pool * draw(st.integers(2, 4)) for _ in range(2))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    mean = draw(st.sampled_from([0.0, -3.0, 30.0]))
    x = torch.randn(count, channels, height, width, generator=generator) * 2 + mean
    layer = NormReLU(channels, pool)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(channels, generator=generator))
        layer.bias.copy_(torch.randn(channels, generator=generator))
    return layer.to(DEVICE), x.to(DEVICE)


def forward_and_backward(layer: NormReLU, x: Tensor, slopes: Tensor, fused: bool) -> list[Tensor]:
    """Return the output, the gradients for ``slopes``, and the buffers of a layer."""
    assert layer.running_mean is not None
    assert layer.running_var is not None
    layer.reset_running_stats()
    x = x.clone().requires_grad_()
    few_parts = patch("srfca.models.norm_relu_triton._PARTS", 4)
    with few_parts, patch.object(layer, "_can_fuse", return_value=fused):
        out = layer(x)
        gradients = torch.autograd.grad(out, (x, layer.weight, layer.bias), slopes.to(out))
    return [t.detach().clone() for t in (out, *gradients, layer.running_mean, layer.running_var)]


def slopes_for(layer: NormReLU, x: Tensor, gap: float) -> Tensor:
    """Return slopes of the output, zero where rounding decides the ReLU or the largest value."""
    pool, (n, c, h, w) = layer.pool, x.shape
    normed = nn.functional.batch_norm(
        x.double(), None, None, layer.weight.double(), layer.bias.double(), training=True
    )
    windows = normed.view(n, c, h // pool, pool, w // pool, pool).transpose(3, 4).flatten(4)
    largest = windows.sort(-1, descending=True).values.detach()
    clear = largest[..., 0].abs() > gap
    if pool > 1:
        clear &= largest[..., 0] - largest[..., 1] > gap
    generator = torch.Generator().manual_seed(0)
    return torch.randn(clear.shape, generator=generator).to(x.device) * clear


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return the relative error in the l2 norm."""
    assert actual.shape == expected.shape
    return float((actual - expected).double().norm() / (expected.double().norm() + 0.01))


@pytest.mark.parametrize(
    ("dtype", "gap", "tolerance"), [(torch.float32, 1e-3, 1e-4), (torch.bfloat16, 0.1, 0.02)]
)
@given(case=layers())
@settings(max_examples=6 if DEVICE == "cpu" else 20)
def test_the_fused_operation_equals_the_separate_layers(
    case: tuple[NormReLU, Tensor], dtype: torch.dtype, gap: float, tolerance: float
) -> None:
    layer, x = case[0], case[1].to(dtype)
    slopes = slopes_for(layer, x, gap).to(dtype)
    first, second = (forward_and_backward(layer, x, slopes, fused=True) for _ in range(2))
    assert all(map(torch.equal, first, second)), "it is deterministic"
    expected = forward_and_backward(layer.double(), x.double(), slopes, fused=False)
    assert max(map(relative_error, first, expected)) < tolerance


def test_the_fused_operation_propagates_nan() -> None:
    x = torch.randn(2, 4, 4, 4, device=DEVICE)
    x[0, 1, 2, 3] = torch.nan
    out = forward_and_backward(NormReLU(4, 2).to(DEVICE), x, torch.ones(2, 4, 2, 2), fused=True)[0]
    assert out.isnan().any(3).any(2).any(0).tolist() == [False, True, False, False]
