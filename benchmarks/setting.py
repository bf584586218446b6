"""What all benchmarks share: clients with images of MNIST's shape, the paper's MLP, sizes.

Needs torch alone, so that every environment draws the very same data and w0.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor, nn

GROUPS = 4
ROUND = "benchmark round"
ROUND_LR = 0.1


@dataclass(frozen=True)
class Setting:
    """Sizes of the benchmarks."""

    clients: int = 100
    samples: int = 600
    hidden: int = 200
    batch: int = 50
    local_steps: int = 50
    """Of every client alone: a fifth of the paper's 250."""
    round_steps: int = 5
    rows: int = 100
    length: int = 10_000_000
    """The rows of the trimmed mean, and how long they are."""
    quick: bool = False


FULL = Setting()
QUICK = Setting(
    clients=8, samples=60, hidden=16, batch=10, local_steps=4, round_steps=2, rows=20,
    length=5_000, quick=True,
)  # fmt: skip


def setting() -> Setting:
    """The sizes that the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    return QUICK if parser.parse_known_args()[0].quick else FULL


def clients(sizes: Setting, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Ten patterns and noise, turned by a quarter per group: x ``[m, n, 784]``, y ``[m, n]``."""
    g = torch.Generator().manual_seed(seed)
    patterns = torch.randn(10, 28, 28, generator=g)
    turned = torch.stack([torch.rot90(patterns, turn, (1, 2)) for turn in range(GROUPS)]).flatten(2)
    y = torch.randint(10, (sizes.clients, sizes.samples), generator=g)
    group = (torch.arange(sizes.clients) % GROUPS).unsqueeze(1)
    noise = torch.randn(sizes.clients, sizes.samples, 784, generator=g)
    return (turned[group, y] + 3 * noise) / 4, y


def mlp(hidden: int, seed: int = 0) -> nn.Sequential:
    """The paper's MLP, with a start that the seed decides."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def row(module: nn.Module) -> Tensor:
    """All weights of a module as one vector ``[P]``."""
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def training_flops(sizes: Setting, steps: int) -> float:
    """Of the products of all clients' steps: forward, and backward without the inputs' gradient."""
    first, second = 784 * sizes.hidden, sizes.hidden * 10
    return 2.0 * sizes.clients * steps * sizes.batch * (2 * first + 3 * second)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads inside torch's operations."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def named(count: int) -> str:
    """So many threads, in words."""
    return "1 thread" if count == 1 else f"{count} threads"


def best_threads(work: Callable[[], object]) -> int:
    """One thread, or torch's own number: whichever does the work faster."""
    taken = {}
    for count in {1, torch.get_num_threads()}:
        with threads(count):
            work()
            seconds = []
            for _ in range(3):
                start = perf_counter()
                work()
                seconds.append(perf_counter() - start)
            taken[count] = min(seconds)
    return min(taken, key=taken.__getitem__)


def round_batches(sizes: Setting) -> Tensor:
    """Which samples clients take in the first round of srfca, and of all: ``[m, steps, b]``."""
    from srfca.random import Key, batches, client_words, streams

    names = [str(client) for client in range(sizes.clients)]
    counts = torch.full((sizes.clients,), sizes.samples)
    stream = streams(Key(0, ROUND), client_words(names))
    return batches(stream, counts, sizes.batch, sizes.round_steps)


def round_samples(sizes: Setting) -> tuple[Tensor, Tensor]:
    """The same ready-made: x ``[m, steps, b, 784]``, y ``[m, steps, b]``."""
    x, y = clients(sizes)
    every = torch.arange(sizes.clients).view(-1, 1, 1)
    index = round_batches(sizes)
    return x[every, index], y[every, index]
