"""LSTMs for several models at once, on a GPU.

``torch.vmap`` has no rule for ``nn.LSTM``. Here its time steps are plain products, of all models at
once, and autograd sees a layer as a whole: the gradient of its weights is one product over time. On
a CPU torch's own kernels, one model at a time, are faster (``benchmarks/blocks.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_Outputs = tuple[Tensor, Tensor, Tensor]


class Stepped(nn.LSTM):
    """An LSTM that ``torch.vmap`` takes; what it does not know is left to ``nn.LSTM``."""

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:  # type: ignore[override]
        """States ``[n, length, hidden]``, or time first, and the last states and cells."""
        drops = self.dropout > 0 and self.training
        if hx is not None or drops or not isinstance(input, Tensor) or input.ndim != 3:
            return super().forward(input, hx)
        x = input.transpose(0, 1) if self.batch_first else input
        last = []
        for into, across, *biases in self.all_weights:
            gates = functional.linear(x, into, biases[0] + biases[1] if biases else None)
            x, cells, _ = _layer(gates, across.to(gates.dtype))
            last.append((x[-1], cells[-1]))
        states, cells = (torch.stack(each) for each in zip(*last, strict=True))
        return x.transpose(0, 1) if self.batch_first else x, (states, cells)


def step_lstms(module: nn.Module) -> nn.Module:
    """The module, whose LSTMs are ``Stepped`` from now on where they can be."""
    for part in module.modules():
        if type(part) is nn.LSTM and not part.bidirectional and not part.proj_size:
            part.__class__ = Stepped
    return module


class _Layer(torch.autograd.Function):
    """Of an LSTM's layer, from zero: states and cells ``[t, b, h]``, and gates ``[t, b, 4h]``.

    Its inputs are what ``x`` and the biases add to the gates, ``[t, b, 4h]`` in the order of torch
    (input, forget, cell, output), and the weights ``[4h, h]`` of the states. Several models have
    another dimension after the first, or before the weights.
    """

    @staticmethod
    def forward(inputs: Tensor, weight: Tensor) -> _Outputs:
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

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Tensor, Tensor]:
        weight, states, cells, gates = ctx.saved_tensors
        of_states, of_cells, _ = slopes
        i, f, g, o = gates.chunk(4, -1)
        squashed = cells.tanh()
        into_cell = o * (1 - squashed * squashed)
        earlier = torch.cat([torch.zeros_like(cells[:1]), cells[:-1]])
        slope = torch.cat(
            [g * i * (1 - i), earlier * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o)], -1
        )  # of the gates, but for the slopes of cells and states
        cell, state = torch.zeros_like(cells[0]), torch.zeros_like(states[0])
        for t in range(len(slope) - 1, -1, -1):
            if of_states is not None:
                state += of_states[t]
            cell.addcmul_(state, into_cell[t])
            if of_cells is not None:
                cell += of_cells[t]
            now = slope[t].unflatten(-1, (4, -1))
            now[..., :3, :] *= cell.unsqueeze(-2)
            now[..., 3, :] *= state
            cell *= f[t]
            state = torch.matmul(slope[t], weight)
        late, early = (_by_model(part) for part in (slope[1:], states[:-1]))
        return slope, torch.matmul(late.mT, early)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], inputs: Tensor, weight: Tensor
    ) -> tuple[_Outputs, tuple[int, int, int]]:
        """The models' dimension goes after time, and before the weights."""
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


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add ``a @ b`` in place, of matrices or of stacks of them."""
    (total.addmm_ if total.ndim == 2 else total.baddbmm_)(a, b)


def _by_model(steps: Tensor) -> Tensor:
    """``[(t b), h]`` from ``[t, b, h]``, and ``[c, (t b), h]`` from ``[t, c, b, h]``."""
    return steps.flatten(0, 1) if steps.ndim == 3 else steps.transpose(0, 1).flatten(1, 2)
