"""LSTMs of several models in one pass, on a GPU.

``torch.vmap`` has no batching rule for ``nn.LSTM``. Here each time step is a batched product over
all models, and a layer is one autograd function: the gradient of its weights is one product over
time. On a CPU torch's kernels, one model at a time, are faster (``benchmarks/blocks.py``).

With Triton a time step is one kernel (``lstm_triton``), unless products have to be exact float32.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_Outputs = tuple[Tensor, Tensor, Tensor]
_HAS_TRITON = find_spec("triton") is not None


class SteppedLSTM(nn.LSTM):
    """An LSTM that works under ``torch.vmap``; unusual calls are left to ``nn.LSTM``."""

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:  # type: ignore[override]
        """Return states ``[n, length, hidden]``, or time first, and the last states and cells."""
        drops = self.dropout > 0 and self.training
        if hx is not None or drops or not isinstance(input, Tensor) or input.ndim != 3:
            return super().forward(input, hx)
        x = input.transpose(0, 1) if self.batch_first else input
        last = []
        for into, across, *biases in self.all_weights:
            gates = functional.linear(x, into, biases[0] + biases[1] if biases else None)
            x, cells, _ = _layer(gates, across.to(gates.dtype))
            last.append((x[-1], cells[-1]))
        states, cells = (torch.stack(parts) for parts in zip(*last, strict=True))
        return x.transpose(0, 1) if self.batch_first else x, (states, cells)


def step_lstms(module: nn.Module) -> nn.Module:
    """Turn the LSTMs of a module into ``SteppedLSTM`` where that is possible, and return it."""
    for part in module.modules():
        if type(part) is nn.LSTM and not part.bidirectional and not part.proj_size:
            part.__class__ = SteppedLSTM
    return module


class _Layer(torch.autograd.Function):
    """One LSTM layer from a zero state: states and cells ``[t, b, h]``, and gates ``[t, b, 4h]``.

    Its inputs are what ``x`` and the biases add to the gates, ``[t, b, 4h]`` in torch's order
    (input, forget, cell, output), and the weights ``[4h, h]`` of the states. Several models add a
    dimension after time, and before the weights.
    """

    @staticmethod
    def forward(inputs: Tensor, weight: Tensor) -> _Outputs:
        if _can_fuse(inputs):
            return _fused_forward(inputs, weight)
        gates = torch.empty_like(inputs, memory_format=torch.contiguous_format)
        states, cells = (inputs.new_empty(*inputs.shape[:-1], weight.shape[-1]) for _ in range(2))
        across = weight.mT
        for t, (gate, state, cell) in enumerate(zip(gates, states, cells, strict=True)):
            gate.copy_(inputs[t])
            if t:
                _add_product(gate, states[t - 1], across)
            i, f, g, o = gate.chunk(4, -1)
            gate[..., : 2 * weight.shape[-1]].sigmoid_()
            g.tanh_()
            o.sigmoid_()
            torch.mul(i, g, out=cell)
            if t:
                cell.addcmul_(f, cells[t - 1])
            torch.mul(o, cell.tanh(), out=state)
        return states, cells, gates

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: _Outputs) -> None:
        states, cells, gates = output
        ctx.mark_non_differentiable(gates)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[1], states, cells, gates)
        ctx.fused = _can_fuse(inputs[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor, Tensor]:
        weight, states, cells, gates = ctx.saved_tensors
        of_states, of_cells, _ = gradients
        if ctx.fused:
            gate_gradient = _fused_backward(weight, cells, gates, of_states, of_cells)
            return gate_gradient, _weight_gradient(gate_gradient, states)
        i, f, g, o = gates.chunk(4, -1)
        squashed = cells.tanh()
        into_cell = o * (1 - squashed * squashed)
        earlier = torch.cat([torch.zeros_like(cells[:1]), cells[:-1]])
        gate_gradient = torch.cat(
            [g * i * (1 - i), earlier * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o)], -1
        )  # gradient of the gates, up to the gradients of cells and states
        cell, state = torch.zeros_like(cells[0]), torch.zeros_like(states[0])
        for t in range(len(gate_gradient) - 1, -1, -1):
            if of_states is not None:
                state += of_states[t]
            cell.addcmul_(state, into_cell[t])
            if of_cells is not None:
                cell += of_cells[t]
            now = gate_gradient[t].unflatten(-1, (4, -1))
            now[..., :3, :] *= cell.unsqueeze(-2)
            now[..., 3, :] *= state
            cell *= f[t]
            state = torch.matmul(gate_gradient[t], weight)
        return gate_gradient, _weight_gradient(gate_gradient, states)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], inputs: Tensor, weight: Tensor
    ) -> tuple[_Outputs, tuple[int, int, int]]:
        """Move the models' dimension after time, and before the weights."""
        at, of_weight = in_dims
        inputs = (
            inputs.unsqueeze(1).expand(-1, info.batch_size, -1, -1)
            if at is None
            else inputs.movedim(at, 1)
        )
        weight = (
            weight.expand(info.batch_size, -1, -1)
            if of_weight is None
            else weight.movedim(of_weight, 0)
        )
        return _layer(inputs, weight), (1, 1, 1)


_layer: Callable[[Tensor, Tensor], _Outputs] = _Layer.apply


def _can_fuse(inputs: Tensor) -> bool:
    """Return whether a kernel per time step is possible, and precise enough."""
    rounds = inputs.dtype == torch.bfloat16 or (
        inputs.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    )
    return _HAS_TRITON and inputs.is_cuda and rounds and not torch.compiler.is_compiling()


def _fused_forward(inputs: Tensor, weight: Tensor) -> _Outputs:
    """Run a layer by ``lstm_triton``."""
    from srfca.engine.backends import lstm_triton

    if inputs.ndim == 4:
        return lstm_triton.forward(inputs, weight)
    states, cells, gates = lstm_triton.forward(inputs.unsqueeze(1), weight.unsqueeze(0))
    return states.squeeze(1), cells.squeeze(1), gates.squeeze(1)


def _fused_backward(
    weight: Tensor, cells: Tensor, gates: Tensor, of_states: Tensor | None, of_cells: Tensor | None
) -> Tensor:
    """Return the gradient of a layer's inputs by ``lstm_triton``."""
    from srfca.engine.backends import lstm_triton

    if cells.ndim == 4:
        return lstm_triton.backward(weight, cells, gates, of_states, of_cells)
    cells, gates = cells.unsqueeze(1), gates.unsqueeze(1)
    of_states, of_cells = (
        None if part is None else part.unsqueeze(1) for part in (of_states, of_cells)
    )
    return lstm_triton.backward(weight.unsqueeze(0), cells, gates, of_states, of_cells).squeeze(1)


def _weight_gradient(gate_gradient: Tensor, states: Tensor) -> Tensor:
    """Return the gradient of the weights of the states: one product over time."""
    late, early = (_by_model(part) for part in (gate_gradient[1:], states[:-1]))
    return torch.matmul(late.mT, early)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add ``a @ b`` in place, for matrices or stacks of matrices."""
    (total.addmm_ if total.ndim == 2 else total.baddbmm_)(a, b)


def _by_model(steps: Tensor) -> Tensor:
    """Flatten time and batch, of ``[t, b, h]`` or ``[t, c, b, h]``."""
    return steps.flatten(0, 1) if steps.ndim == 3 else steps.transpose(0, 1).flatten(1, 2)
