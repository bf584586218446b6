"""Seconds of three local steps of convolutional and recurrent models, by the size of a block.

OMP_NUM_THREADS=1 python benchmarks/blocks.py
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch
from torch import Tensor, nn

from srfca import ClientData, LocalTraining, Simulation
from srfca.engine.backends.lstm import step_lstms
from srfca.federation import Train
from srfca.models import CNN, LSTM, ResNet9
from srfca.random import Key

NUM_CLIENTS, NUM_SAMPLES, REPEATS = 8, 60, 3
LOCAL = LocalTraining(steps=3, local_steps=3, batch_size=20, lr=0.01)


def stepped(model: LSTM) -> Callable[[], nn.Module]:
    """Return the LSTM as it runs on a GPU: each time step for several clients at once."""
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
"""A name, a model, and the shape of its inputs."""


def random_data(shape: tuple[int, ...]) -> ClientData:
    """Draw random images, or texts if they have one dimension, of random classes."""
    g = torch.Generator().manual_seed(0)

    def draw() -> tuple[Tensor, Tensor]:
        y = torch.randint(10, (NUM_SAMPLES,), generator=g)
        if len(shape) == 1:
            return torch.randint(80, (NUM_SAMPLES, *shape), generator=g), y
        return torch.randn(NUM_SAMPLES, *shape, generator=g), y

    return ClientData.from_arrays([draw() for _ in range(NUM_CLIENTS)])


def fastest(simulation: Simulation) -> float:
    """Return the seconds of the fastest of several rounds of all clients."""
    starts = simulation.initial_model(0).repeat(NUM_CLIENTS, 1)
    request = Train(range(NUM_CLIENTS), starts, LOCAL, Key(0, "benchmark"))
    seconds = []
    for _ in range(REPEATS):
        start = perf_counter()
        simulation.ask(request)
        seconds.append(perf_counter() - start)
    return min(seconds)


def main() -> None:
    """Print a table."""
    for name, model, shape in CASES:
        data = random_data(shape)
        seconds = {
            size: fastest(Simulation(data, model, device="cpu", block_size=size))
            for size in (None, 1, 4, 8)
        }
        cells = "  ".join(f"{size or 'auto'}: {s:6.3f}" for size, s in seconds.items())
        print(f"{name:66} {cells}", flush=True)


if __name__ == "__main__":
    main()
