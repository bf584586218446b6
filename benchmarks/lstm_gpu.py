"""The LSTM layer on one CUDA GPU: is it right, and how fast is each block size?

    python benchmarks/lstm_gpu.py             # precision, the kernels, and a whole step
    python benchmarks/lstm_gpu.py --tune      # many block sizes too

The setting is that of Shakespeare: 50 clients, batches of 50 texts of 80 characters, two layers of
256 units. Times are medians of replays of a CUDA graph. Errors are relative to float64, in the l2
norm.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import product
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from srfca import ClientData, LocalTraining, Simulation, models
from srfca.engine.backends import lstm, lstm_triton
from srfca.federation import Train
from srfca.random import Key

CLIENTS, BATCH, LENGTH, HIDDEN = 50, 50, 80, 256
SIZES = ((LENGTH, CLIENTS, BATCH, HIDDEN), (5, 3, 70, 40), (4, 2, 3, 33))


def layer(
    shape: tuple[int, int, int, int], dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw inputs and weights of a layer, and the gradient of its states."""
    length, clients, batch, hidden = shape
    inputs = torch.randn(clients, length, batch, 4 * hidden, device="cuda").transpose(0, 1)
    weight = torch.randn(clients, 4 * hidden, hidden, device="cuda") / hidden**0.5
    slopes = torch.randn(clients, length, batch, hidden, device="cuda").transpose(0, 1)
    return inputs.to(dtype), weight.to(dtype), slopes.to(dtype)


def gradients(inputs: Tensor, weight: Tensor, slopes: Tensor) -> list[Tensor]:
    """Return states, and the gradients of inputs and weights."""
    inputs, weight = inputs.detach().requires_grad_(), weight.detach().requires_grad_()
    states, _, _ = lstm._layer(inputs, weight)
    return [states.detach(), *torch.autograd.grad(states, [inputs, weight], slopes)]


def errors() -> Iterator[str]:
    """Compare both paths with float64."""
    for shape, dtype in product(SIZES, (torch.float32, torch.bfloat16)):
        case = layer(shape, dtype)
        expected = gradients(*(part.double() for part in case))
        for name, triton in (("torch", False), ("Triton", True)):
            with patch.object(lstm, "_HAS_TRITON", triton):
                actual = gradients(*case)
            size = [float((a - e).norm() / e.norm()) for a, e in zip(actual, expected, strict=True)]
            again = gradients(*case) if triton else actual
            same = all(map(torch.equal, actual, again))
            texts = "  ".join(f"{error:.1e}" for error in size)
            yield f"{shape!s:20} {dtype!s:15} {name:7} {texts}  same bits: {same}"


def replay_time(function: Callable[[], object], repeats: int = 10) -> float:
    """Return the milliseconds of a CUDA graph of a function."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            function()
        times = []
        for _ in range(repeats):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
    return median(times)


def blocks(tune: bool) -> Iterator[dict[str, Any]]:
    """Yield block sizes; without ``tune`` the ones in use."""
    if not tune:
        yield {}
        return
    for units, depth, warps, stages in product((32, 64), (32, 64), (4, 8), (2, 3, 4)):
        yield {"UNITS": units, "DEPTH": depth, "num_warps": warps, "num_stages": stages}


def kernels(tune: bool) -> Iterator[str]:
    """Time the kernels of one layer, forward and backward."""
    for dtype in (torch.float32, torch.bfloat16):
        inputs, weight, slopes = layer(SIZES[0], dtype)
        _, cells, gates = lstm_triton.forward(inputs, weight)
        for name, function in (
            ("FORWARD", lambda i=inputs, w=weight: lstm_triton.forward(i, w)),
            (
                "BACKWARD",
                lambda w=weight, c=cells, g=gates, s=slopes: lstm_triton.backward(w, c, g, s, None),
            ),
        ):
            for block in blocks(tune):
                with patch.dict(getattr(lstm_triton, name), block):
                    chosen = dict(getattr(lstm_triton, name))
                    try:
                        took = f"{replay_time(function):7.3f} ms"
                    except Exception as error:  # a block may need too much shared memory
                        took = f"fails: {str(error).splitlines()[0][:60]}"
                yield f"{dtype!s:15} {name:9} {took}  {chosen}"


def steps() -> Iterator[str]:
    """Time a whole training step, with Triton's kernels and without."""
    g = torch.Generator().manual_seed(0)

    def draw() -> tuple[Tensor, Tensor]:
        x = torch.randint(80, (300, LENGTH), generator=g)
        return x, torch.randint(80, (300,), generator=g)

    data = ClientData.from_arrays([draw() for _ in range(CLIENTS)])
    local = LocalTraining(steps=20, local_steps=20, batch_size=BATCH, optimizer="adam", lr=0.001)
    for precision in ("float32", "tf32", "bf16"):
        for triton in (False, True):
            if precision == "float32" and triton:
                continue
            with patch.object(lstm, "_HAS_TRITON", False) if not triton else nullcontext():
                fed = Simulation(
                    data, models.LSTM(), device="cuda", validation=0.0, precision=precision
                )
                starts = fed.initial_model(0).repeat(CLIENTS, 1)
                request = Train(range(CLIENTS), starts, local, Key(0, "benchmark"))
                times = []
                for _ in range(4):
                    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    begin.record()
                    rows = fed.ask(request).values
                    end.record()
                    torch.cuda.synchronize()
                    times.append(begin.elapsed_time(end) / local.steps)
            moved = float((rows - starts).norm())
            yield (
                f"{precision:8} {'Triton' if triton else 'torch':7} {median(times[1:]):7.2f} ms a "
                f"step, models moved by {moved:.4f}"
            )
            del fed
            torch.cuda.empty_cache()


def main() -> None:
    """Print errors and times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tune", action="store_true", help="time many block sizes")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    print("relative errors: states, gradients of inputs and weights")
    for line in errors():
        print(line, flush=True)
    for line in kernels(arguments.tune):
        print(line, flush=True)
    for line in steps():
        print(line, flush=True)


if __name__ == "__main__":
    main()
