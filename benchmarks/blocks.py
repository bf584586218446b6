"""Seconds of three local steps of convolutional models, by the number of clients in a block.

OMP_NUM_THREADS=1 python benchmarks/blocks.py
"""

from __future__ import annotations

from time import perf_counter

import torch

from srfca import ClientData, Simulation, Work
from srfca.models import CNN, ResNet9
from srfca.random import Key

CLIENTS, SAMPLES, REPEATS = 8, 60, 3
WORK = Work(steps=3, local_steps=3, batch_size=20, lr=0.01)
CASES: list[tuple[CNN | ResNet9, tuple[int, ...]]] = [
    (CNN(size=8, hidden=32), (8, 8)),
    (CNN(hidden=32), (28, 28)),
    (CNN(), (28, 28)),
    (ResNet9(width=2), (3, 16, 16)),
    (ResNet9(width=16), (3, 32, 32)),
    (ResNet9(width=16, norm="group"), (3, 32, 32)),
]


def clients(shape: tuple[int, ...]) -> ClientData:
    """Random images of random classes."""
    g = torch.Generator().manual_seed(0)
    return ClientData.of(
        [
            (torch.randn(SAMPLES, *shape, generator=g), torch.randint(10, (SAMPLES,), generator=g))
            for _ in range(CLIENTS)
        ]
    )


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
    for model, shape in CASES:
        data = clients(shape)
        found = {
            size: seconds(Simulation(data, model, device="cpu", block_size=size))
            for size in (None, 1, 4, 8)
        }
        row = "  ".join(f"{size or 'auto'}: {s:6.3f}" for size, s in found.items())
        print(f"{model!s:66} {row}", flush=True)


if __name__ == "__main__":
    main()
