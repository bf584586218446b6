"""LSTM layers of several models, one kernel per time step. Needs a CUDA device and Triton.

A time step is a batched product over all models. Its kernel also applies the gates and updates the
cells. Backward in time, a kernel multiplies the gradients of the next step's gates by the weights,
and turns them into those of its own step.

A program computes some hidden units of some samples of one model. Consecutive steps go through the
models in opposite order, so that the weights that were read last are still in the L2 cache. Sums
are taken in a fixed order: the same input gives the same bits.

In memory models come first, ``[models, time, batch, ...]``: products over all time steps then need
no copy.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

FORWARD: dict[str, Any] = {
    "ROWS": 64, "UNITS": 32, "DEPTH": 32, "num_warps": 4, "num_stages": 4,
}  # fmt: skip
"""Samples and hidden units of a program, and how many products are summed at once."""
BACKWARD: dict[str, Any] = {
    "ROWS": 64, "UNITS": 64, "DEPTH": 32, "num_warps": 4, "num_stages": 4,
}  # fmt: skip
"""The same, backward in time."""


@triton.jit
def _place(t, models, ROWS: tl.constexpr, UNITS: tl.constexpr):
    """Return the model of a program, its samples ``[ROWS, 1]`` and its hidden units ``[UNITS]``."""
    model = tl.program_id(1)
    model = tl.where(t % 2 == 0, model, models - 1 - model).to(tl.int64)
    rows = (tl.program_id(2) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    return model, rows[:, None], tl.program_id(0) * UNITS + tl.arange(0, UNITS)


@triton.jit
def _load(pointers, inside):
    """Load numbers in float32."""
    return tl.load(pointers, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _tanh(x):
    """Return the hyperbolic tangent."""
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit(do_not_specialize=["t"])
def _forward(
    inputs, weight, states, cells, gates, t, models, length, batch,
    input_time, input_model, input_row, weight_model,
    HIDDEN: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Compute gates, cells and states of a time step."""
    model, rows, units = _place(t, models, ROWS, UNITS)
    unit = units[None, :]
    inside = (rows < batch) & (unit < HIDDEN)
    time = tl.cast(t, tl.int64)
    source = inputs + time * input_time + model * input_model + rows * input_row + unit
    row = (model * length + t) * batch + rows
    i = _load(source, inside)
    f = _load(source + HIDDEN, inside)
    g = _load(source + 2 * HIDDEN, inside)
    o = _load(source + 3 * HIDDEN, inside)
    cell = tl.zeros([ROWS, UNITS], tl.float32)
    if t > 0:
        cell = _load(cells + (row - batch) * HIDDEN + unit, inside)
        k = tl.arange(0, DEPTH)
        before = states + (row - batch) * HIDDEN + k[None, :]
        column = weight + model * weight_model + unit * HIDDEN + k[:, None]  # weights are [4h, h]
        for start in range(0, HIDDEN, DEPTH):
            deep = start + k < HIDDEN
            state = tl.load(before + start, mask=(rows < batch) & deep[None, :], other=0.0)
            valid = deep[:, None] & (unit < HIDDEN)
            part = column + start
            i = tl.dot(state, tl.load(part, mask=valid, other=0.0), i)
            part += HIDDEN * HIDDEN
            f = tl.dot(state, tl.load(part, mask=valid, other=0.0), f)
            part += HIDDEN * HIDDEN
            g = tl.dot(state, tl.load(part, mask=valid, other=0.0), g)
            part += HIDDEN * HIDDEN
            o = tl.dot(state, tl.load(part, mask=valid, other=0.0), o)
    i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), _tanh(g), tl.sigmoid(o)
    cell = f * cell + i * g
    target = gates + row * 4 * HIDDEN + unit
    tl.store(target, i, mask=inside)
    tl.store(target + HIDDEN, f, mask=inside)
    tl.store(target + 2 * HIDDEN, g, mask=inside)
    tl.store(target + 3 * HIDDEN, o, mask=inside)
    tl.store(cells + row * HIDDEN + unit, cell, mask=inside)
    tl.store(states + row * HIDDEN + unit, o * _tanh(cell), mask=inside)


@triton.jit(do_not_specialize=["t"])
def _backward(
    of_states, of_cells, weight, cells, gates, of_gates, carried, t, models, length, batch,
    state_time, state_model, state_row, cell_time, cell_model, cell_row,
    HIDDEN: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a time step's gates, before their nonlinearities.

    ``weight`` is transposed, ``[h, 4h]``. ``carried`` is the gradient of the step's cells that
    comes from the next step; that of the step before is written to the same place.
    """
    model, rows, units = _place(t, models, ROWS, UNITS)
    unit = units[None, :]
    inside = (rows < batch) & (unit < HIDDEN)
    row = (model * length + t) * batch + rows
    time = tl.cast(t, tl.int64)
    offset = (model * batch + rows) * HIDDEN + unit
    state = tl.zeros([ROWS, UNITS], tl.float32)
    cell = tl.zeros([ROWS, UNITS], tl.float32)
    if t < length - 1:
        cell = _load(carried + offset, inside)
        k = tl.arange(0, DEPTH)
        after = of_gates + (row + batch) * 4 * HIDDEN + k[None, :]
        column = weight + (model * HIDDEN + unit) * 4 * HIDDEN + k[:, None]
        for start in range(0, 4 * HIDDEN, DEPTH):
            deep = start + k < 4 * HIDDEN
            gate = tl.load(after + start, mask=(rows < batch) & deep[None, :], other=0.0)
            valid = deep[:, None] & (unit < HIDDEN)
            state = tl.dot(gate, tl.load(column + start, mask=valid, other=0.0), state)
    if of_states is not None:
        source = of_states + time * state_time + model * state_model + rows * state_row + unit
        state += _load(source, inside)
    if of_cells is not None:
        source = of_cells + time * cell_time + model * cell_model + rows * cell_row + unit
        cell += _load(source, inside)
    source = gates + row * 4 * HIDDEN + unit
    i = _load(source, inside)
    f = _load(source + HIDDEN, inside)
    g = _load(source + 2 * HIDDEN, inside)
    o = _load(source + 3 * HIDDEN, inside)
    squashed = _tanh(_load(cells + row * HIDDEN + unit, inside))
    earlier = tl.zeros([ROWS, UNITS], tl.float32)
    if t > 0:
        earlier = _load(cells + (row - batch) * HIDDEN + unit, inside)
    cell += state * o * (1 - squashed * squashed)
    target = of_gates + row * 4 * HIDDEN + unit
    tl.store(target, cell * g * i * (1 - i), mask=inside)
    tl.store(target + HIDDEN, cell * earlier * f * (1 - f), mask=inside)
    tl.store(target + 2 * HIDDEN, cell * i * (1 - g * g), mask=inside)
    tl.store(target + 3 * HIDDEN, state * squashed * o * (1 - o), mask=inside)
    tl.store(carried + offset, cell * f, mask=inside)


def forward(inputs: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Run a layer from a zero state.

    Args:
        inputs: ``[t, c, b, 4h]`` what the inputs and the biases add to the gates, in torch's order.
        weight: ``[c, 4h, h]`` of the states.

    Returns:
        States and cells ``[t, c, b, h]``, and gates ``[t, c, b, 4h]``.
    """
    inputs = inputs if inputs.stride(-1) == 1 else inputs.contiguous()
    if weight.stride()[1:] != (weight.shape[2], 1):
        weight = weight.contiguous()
    length, models, batch, _ = inputs.shape
    hidden = weight.shape[-1]
    states, cells, gates = (
        inputs.new_empty(models, length, batch, width) for width in (hidden, hidden, 4 * hidden)
    )
    for t in range(length):
        _forward[_grid(models, batch, hidden, FORWARD)](
            inputs, weight, states, cells, gates, t, models, length, batch,
            *inputs.stride()[:3], weight.stride(0), HIDDEN=hidden, **FORWARD,
        )  # fmt: skip
    return states.transpose(0, 1), cells.transpose(0, 1), gates.transpose(0, 1)


def backward(
    weight: Tensor, cells: Tensor, gates: Tensor, of_states: Tensor | None, of_cells: Tensor | None
) -> Tensor:
    """Return the gradient ``[t, c, b, 4h]`` of a layer's inputs.

    Args:
        weight: ``[c, 4h, h]``
        cells: ``[t, c, b, h]`` as ``forward`` returns them.
        gates: ``[t, c, b, 4h]``
        of_states: Gradient ``[t, c, b, h]`` of the states, None for zero.
        of_cells: Gradient ``[t, c, b, h]`` of the cells, None for zero.
    """
    of_states, of_cells = (
        part if part is None or part.stride(-1) == 1 else part.contiguous()
        for part in (of_states, of_cells)
    )
    length, models, batch, hidden = cells.shape
    of_gates = torch.empty_like(gates.transpose(0, 1))
    carried = cells.new_empty(models, batch, hidden, dtype=torch.float32)
    strides = [
        stride
        for part in (of_states, of_cells)
        for stride in ((0, 0, 0) if part is None else part.stride()[:3])
    ]
    transposed = weight.mT.contiguous()
    for t in reversed(range(length)):
        _backward[_grid(models, batch, hidden, BACKWARD)](
            of_states, of_cells, transposed, cells, gates, of_gates, carried,
            t, models, length, batch, *strides, HIDDEN=hidden, **BACKWARD,
        )  # fmt: skip
    return of_gates.transpose(0, 1)


def _grid(models: int, batch: int, hidden: int, block: dict[str, Any]) -> tuple[int, int, int]:
    """Return the grid of programs that covers all models, samples and hidden units."""
    return triton.cdiv(hidden, block["UNITS"]), models, triton.cdiv(batch, block["ROWS"])
