"""What all benchmarks share: sizes, made-up client data, and networks.

Needs only torch, so that every environment draws exactly the same data and initial model.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor, nn

Network = Literal["mlp", "cnn", "lstm"]
GROUPS = 4
SYMBOLS = 80
LENGTH = 80
"""Characters of a text, as in the Shakespeare experiments."""
ROUND_PURPOSE = "benchmark round"
ROUND_LR = 0.1


@dataclass(frozen=True)
class Setting:
    """Sizes of the benchmarks."""

    num_clients: int = 100
    num_samples: int = 600
    """Training samples of each client."""
    hidden: int = 200
    batch_size: int = 50
    local_steps: int = 50
    """Steps of local training: a fifth of the paper's 250."""
    round_steps: int = 5
    num_rows: int = 100
    """Rows of the trimmed mean."""
    row_length: int = 10_000_000
    quick: bool = False
    network: Network = "mlp"
    """The network of the federated round."""

    def of_network(self, network: Network) -> Setting:
        """Return the sizes for a round with another network, whose steps take longer."""
        if network == "mlp" or self.quick:
            return replace(self, network=network)
        sizes = {"num_clients": 16, "num_samples": 100, "batch_size": 20}
        return replace(self, network=network, **sizes)


FULL = Setting()
QUICK = Setting(
    num_clients=8, num_samples=60, hidden=16, batch_size=10, local_steps=4, round_steps=2,
    num_rows=20, row_length=5_000, quick=True,
)  # fmt: skip


def parse_setting() -> Setting:
    """Return the sizes that the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--network", choices=["mlp", "cnn", "lstm"], default="mlp")
    options = parser.parse_known_args()[0]
    return (QUICK if options.quick else FULL).of_network(options.network)


def client_arrays(setting: Setting, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw ten patterns with noise, rotated by a further 90 degrees for each group of clients.

    Returns:
        x ``[m, n, 784]`` and y ``[m, n]``.
    """
    g = torch.Generator().manual_seed(seed)
    patterns = torch.randn(10, 28, 28, generator=g)
    rotated = torch.stack([torch.rot90(patterns, turn, (1, 2)) for turn in range(GROUPS)])
    y = torch.randint(10, (setting.num_clients, setting.num_samples), generator=g)
    group = (torch.arange(setting.num_clients) % GROUPS).unsqueeze(1)
    noise = torch.randn(setting.num_clients, setting.num_samples, 784, generator=g)
    return (rotated.flatten(2)[group, y] + 3 * noise) / 4, y


def text_arrays(setting: Setting, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw random texts, and their next characters.

    Returns:
        x ``[m, n, LENGTH]`` and y ``[m, n]``.
    """
    g = torch.Generator().manual_seed(seed)
    shape = (setting.num_clients, setting.num_samples)
    return (
        torch.randint(SYMBOLS, (*shape, LENGTH), generator=g),
        torch.randint(SYMBOLS, shape, generator=g),
    )


def round_arrays(setting: Setting) -> tuple[Tensor, Tensor]:
    """Return the clients' data for a federated round with the network of the setting."""
    return text_arrays(setting) if setting.network == "lstm" else client_arrays(setting)


def round_network(setting: Setting, seed: int = 0) -> nn.Module:
    """Return the network of a federated round, initialized by the seed."""
    if setting.network == "mlp":
        return mlp(setting.hidden, seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return cnn(setting.hidden) if setting.network == "cnn" else LSTM(setting.hidden)


def cnn(hidden: int) -> nn.Sequential:
    """Return LEAF's network for FEMNIST, for ten classes; ``hidden`` sets its width."""
    width = max(1, hidden // 100)
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16 * width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16 * width, 32 * width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * width * 49, 1024 * width), nn.ReLU(),
        nn.Linear(1024 * width, 10),
    )  # fmt: skip


class LSTM(nn.Module):
    """LEAF's network for Shakespeare: an embedding, two LSTM layers and a dense layer."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, 8)
        self.lstm = nn.LSTM(8, hidden, num_layers=2, batch_first=True)
        self.out = nn.Linear(hidden, SYMBOLS)

    def forward(self, x: Tensor) -> Tensor:
        """Map texts ``[n, length]`` to logits ``[n, SYMBOLS]``."""
        states, _ = self.lstm(self.embedding(x))
        return torch.as_tensor(self.out(states[:, -1]))


def mlp(hidden: int, seed: int = 0) -> nn.Sequential:
    """Return the paper's MLP, initialized by the seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def to_row(module: nn.Module) -> Tensor:
    """Return all weights of a module as one vector ``[P]``."""
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def training_flops(setting: Setting, steps: int) -> float:
    """Count the FLOPs of all clients' matrix products: forward, and backward without inputs."""
    first, second = 784 * setting.hidden, setting.hidden * 10
    return 2.0 * setting.num_clients * steps * setting.batch_size * (2 * first + 3 * second)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch's operations use this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def thread_label(count: int) -> str:
    """Return a number of threads in words."""
    return "1 thread" if count == 1 else f"{count} threads"


def best_threads(function: Callable[[], object]) -> int:
    """Return 1 or torch's default number of threads, whichever runs the function faster."""
    fastest = {}
    for count in {1, torch.get_num_threads()}:
        with torch_threads(count):
            function()
            seconds = []
            for _ in range(3):
                start = perf_counter()
                function()
                seconds.append(perf_counter() - start)
            fastest[count] = min(seconds)
    return min(fastest, key=fastest.__getitem__)


def round_batches(setting: Setting) -> Tensor:
    """Return the samples of each client's batches in srfca's first round: ``[m, steps, b]``."""
    from srfca.random import Key, batches, client_words, streams

    client_ids = [str(client) for client in range(setting.num_clients)]
    sizes = torch.full((setting.num_clients,), setting.num_samples)
    stream = streams(Key(0, ROUND_PURPOSE), client_words(client_ids))
    return batches(stream, sizes, setting.batch_size, setting.round_steps)


def round_samples(setting: Setting) -> tuple[Tensor, Tensor]:
    """Return these batches: x ``[m, steps, b, ...]``, y ``[m, steps, b]``."""
    x, y = round_arrays(setting)
    clients = torch.arange(setting.num_clients).view(-1, 1, 1)
    index = round_batches(setting)
    return x[clients, index], y[clients, index]
