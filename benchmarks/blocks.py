"""Seconds of three local steps of other models than dense ones, by the clients in a block.

OMP_NUM_THREADS=1 python benchmarks/blocks.py
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch
from torch import Tensor, nn

from srfca import ClientData, Simulation, Work
from srfca.federation.recurrent import step_lstms
from srfca.models import CNN, LSTM, ResNet9
from srfca.random import Key

CLIENTS, SAMPLES, REPEATS = 8, 60, 3
WORK = Work(steps=3, local_steps=3, batch_size=20, lr=0.01)


def stepped(model: LSTM) -> Callable[[], nn.Module]:
    """As on a GPU: the time steps of several clients at once."""
    return lambda: step_lstms(model())


CASES: list[tuple[str, Callable[[], nn.Module], tuple[int, ...]]] = [
    *(
        (str(model), model, shape)
        for model, shape in (
            (CNN(size=8, hidden=32), (8, 8)),
            (CNN(hidden=32), (28, 28)),
            (CNN(), (28, 28)),
            (ResNet9(width=2), (3, 16, 16)),
            (ResNet9(width=16), (3, 32, 32)),
            (ResNet9(width=16, norm="group"), (3, 32, 32)),
        )
    ),
    ("LSTM, hidden=32", LSTM(hidden=32), (80,)),
    ("LSTM, hidden=32, stepped", stepped(LSTM(hidden=32)), (80,)),
    ("LSTM, hidden=256", LSTM(), (80,)),
    ("LSTM, hidden=256, stepped", stepped(LSTM()), (80,)),
]


def clients(shape: tuple[int, ...]) -> ClientData:
    """Random images, or texts if they have one dimension, of random classes."""
    g = torch.Generator().manual_seed(0)

    def draw() -> tuple[Tensor, Tensor]:
        y = torch.randint(10, (SAMPLES,), generator=g)
        if len(shape) == 1:
            return torch.randint(80, (SAMPLES, *shape), generator=g), y
        return torch.randn(SAMPLES, *shape, generator=g), y

    return ClientData.from_arrays([draw() for _ in range(CLIENTS)])


def seconds(simulation: Simulation) -> float:
    """The fastest of several rounds of all clients."""
    starts = simulation.initial(0).repeat(CLIENTS, 1)
    taken = []
    for _ in range(REPEATS):
        start = perf_counter()
        simulation.fit(starts, range(CLIENTS), WORK, Key(0, "benchmark"))
        taken.append(perf_counter() - start)
    return min(taken)


def main() -> None:
    """Print a table."""
    for name, model, shape in CASES:
        data = clients(shape)
        found = {
            size: seconds(Simulation(data, model, device="cpu", block_size=size))
            for size in (None, 1, 4, 8)
        }
        row = "  ".join(f"{size or 'auto'}: {s:6.3f}" for size, s in found.items())
        print(f"{name:66} {row}", flush=True)


if __name__ == "__main__":
    main()
