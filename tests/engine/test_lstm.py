"""Stepped LSTMs against ``nn.LSTM``, in double precision."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, vmap

from srfca.engine.backends.lstm import SteppedLSTM, step_lstms

Output = tuple[Tensor, tuple[Tensor, Tensor]]


def loss_of(output: Output, weights: Tensor, *, cells: bool) -> Tensor:
    """A number that depends on all states, and with ``cells`` on the last states and cells."""
    states, (last, ends) = output
    total = (states * weights).sum()
    return total + (last * last).sum() + (ends * last).sum() if cells else total


def random_state(module: nn.Module, count: int, g: torch.Generator) -> dict[str, Tensor]:
    return {
        name: torch.randn(count, *p.shape, generator=g, dtype=torch.float64).requires_grad_()
        for name, p in module.named_parameters()
    }


@given(
    models=st.integers(1, 3), length=st.integers(1, 5), batch=st.integers(1, 4),
    inputs=st.integers(1, 3), hidden=st.integers(1, 3), layers=st.integers(1, 3),
    bias=st.booleans(), first=st.booleans(), cells=st.booleans(), shared=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_several_models_at_once_agree_with_nn_lstm_one_by_one(
    models: int, length: int, batch: int, inputs: int, hidden: int, layers: int,
    bias: bool, first: bool, cells: bool, shared: bool, seed: int,
) -> None:  # fmt: skip
    g = torch.Generator().manual_seed(seed)
    plain = nn.LSTM(inputs, hidden, layers, bias=bias, batch_first=first).double()
    stepped = step_lstms(deepcopy(plain))
    shape = (batch, length) if first else (length, batch)
    x = torch.randn(models, *shape, inputs, generator=g, dtype=torch.float64)
    weights = torch.randn(*shape, hidden, generator=g, dtype=torch.float64)
    state = random_state(plain, models, g)
    names = list(state)

    expected = []
    for model in range(models):
        one = {name: t[model] for name, t in state.items()}
        output = functional_call(plain, one, (x[0] if shared else x[model],))
        expected.append(loss_of(output, weights, cells=cells))
    expected_gradients = torch.autograd.grad(torch.stack(expected).sum(), list(state.values()))

    def one_model(state: dict[str, Tensor], x: Tensor) -> Tensor:
        return loss_of(functional_call(stepped, state, (x,)), weights, cells=cells)

    losses = vmap(one_model, in_dims=(0, None if shared else 0))(state, x[0] if shared else x)
    torch.testing.assert_close(losses, torch.stack(expected))
    gradients = torch.autograd.grad(losses.sum(), list(state.values()))
    for name, gradient, wanted in zip(names, gradients, expected_gradients, strict=True):
        close = torch.allclose(gradient, wanted, rtol=1e-9, atol=1e-12)
        assert close, f"{name}: {gradient} is not {wanted}"


def test_a_single_model_needs_no_vmap_and_its_inputs_have_gradients() -> None:
    plain = nn.LSTM(3, 4, 2, batch_first=True).double()
    stepped = step_lstms(deepcopy(plain))
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    gradients, expected = (
        torch.autograd.grad(module(x)[0].square().sum(), [x, *module.parameters()])
        for module in (stepped, plain)
    )
    torch.testing.assert_close(gradients, expected)


def test_unusual_calls_are_left_to_nn_lstm() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, 3, generator=g)
    for module in (nn.LSTM(3, 4, bidirectional=True), nn.LSTM(3, 4, proj_size=2), nn.GRU(3, 4)):
        assert type(step_lstms(module)) is type(module) is not SteppedLSTM
    stepped = step_lstms(nn.LSTM(3, 4, 2, batch_first=True, dropout=0.5))
    plain = nn.LSTM(3, 4, 2, batch_first=True, dropout=0.5)
    plain.load_state_dict(stepped.state_dict())
    start = (torch.randn(2, 2, 4, generator=g), torch.randn(2, 2, 4, generator=g))
    for arguments in ((x,), (x, start), (x[0],)):
        torch.manual_seed(1)
        expected = plain(*arguments)
        torch.manual_seed(1)
        torch.testing.assert_close(stepped(*arguments), expected)
    torch.testing.assert_close(stepped.eval()(x), plain.eval()(x))


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
def test_it_works_under_autocast(precision: torch.dtype) -> None:
    plain = nn.LSTM(3, 4)
    stepped = step_lstms(deepcopy(plain))
    x = torch.randn(6, 2, 3)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision is torch.bfloat16):
        states, _ = stepped(x)
    assert states.dtype is precision
    states.float().square().sum().backward()
    expected = torch.autograd.grad(plain(x)[0].square().sum(), list(plain.parameters()))
    for parameter, gradient in zip(stepped.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert parameter.grad.dtype is torch.float32
        torch.testing.assert_close(parameter.grad, gradient, rtol=0.1, atol=0.05)
