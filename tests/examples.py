"""Small federations and models for tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from srfca.data import ClientData, rotated_digits


def classification(
    sizes: list[int], shape: tuple[int, ...] = (6,), classes: int = 3, seed: int = 0
) -> ClientData:
    """Random inputs whose class is that of their nearest random direction."""
    g = torch.Generator().manual_seed(seed)
    teacher = torch.randn(classes, *shape, generator=g).flatten(1)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(n, *shape, generator=g)
        return x, (x.flatten(1) @ teacher.T).argmax(1)

    return ClientData.from_arrays([draw(n) for n in sizes], [draw(5) for _ in sizes])


def regression(sizes: list[int], d: int = 4, seed: int = 0, clusters: int = 1) -> ClientData:
    """Linear regressions, one for each cluster; clients are assigned in turn."""
    g = torch.Generator().manual_seed(seed)
    w = 3 * torch.randn(clusters, d, generator=g)

    def draw(n: int, c: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(n, d, generator=g)
        return x, x @ w[c] + 0.1 * torch.randn(n, generator=g)

    truth = [i % clusters for i in range(len(sizes))]
    train = [draw(n, c) for n, c in zip(sizes, truth, strict=True)]
    return ClientData.from_arrays(train, [draw(20, c) for c in truth], truth)


def characters(sizes: list[int], seed: int = 0) -> ClientData:
    """Random strings over 7 symbols; the target is the last symbol but one."""
    g = torch.Generator().manual_seed(seed)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        x = torch.randint(7, (n, 5), generator=g)
        return x, x[:, -2]

    return ClientData.from_arrays([draw(n) for n in sizes], [draw(5) for _ in sizes])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.lstm = nn.LSTM(4, 5, num_layers=2, batch_first=True)
        self.out = nn.Linear(5, 7)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(x))
        return torch.as_tensor(self.out(states[:, -1]))


class Summed(nn.Module):
    """Two parameters whose gradients are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Parameter(torch.ones(3, 6)), nn.Parameter(torch.zeros(3, 6))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.one + self.other)


class Frozen(nn.Module):
    """Has a parameter that is not trained, one that is not used, and a constant buffer."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.first.weight.requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(2))
        self.last = nn.Linear(5, 3)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(self.scale * torch.tanh(self.first(x))))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)
    )


def batch_normed() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)
    )


def cumulative_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 3))


def dropped_out() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))


def permuted_digits_of_unequal_scale(clients: int = 16) -> ClientData:
    """Two groups of clients whose labels differ; the images of each client differ in brightness.

    The buffers of a BatchNorm then vary by the brightness, far more than the weights by the group.
    """
    digits = rotated_digits(num_clients=clients, rotations=1)
    order = torch.randperm(clients, generator=torch.Generator().manual_seed(0))
    gains = torch.linspace(2.0, 40.0, clients)[order]
    parts = [
        (gain * x, y if c % 2 else 9 - y)
        for c, gain in enumerate(gains)
        for x, y in [digits.train.of(c)]
    ]
    return ClientData.from_arrays(parts, truth=np.arange(clients) % 2)


def batch_normed_mlp() -> nn.Module:
    """A dense network with a BatchNorm: 64 inputs, ten classes."""
    layers = nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)
    return nn.Sequential(nn.Flatten(), *layers)


def doubled(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """The same model in double precision."""
    return lambda: make().double()


def mixed_regressions(
    shares: list[float], n: int = 20, d: int = 4, noise: float = 0.1, seed: int = 0
) -> ClientData:
    """Two linear regressions; a client's share is the probability of a sample of the first."""
    g = torch.Generator().manual_seed(seed)
    w = 2 * torch.randn(2, d, generator=g)

    def draw(n: int, share: float) -> tuple[Tensor, Tensor]:
        x = torch.randn(n, d, generator=g)
        which = (torch.rand(n, generator=g) >= share).long()
        return x, (x * w[which]).sum(1) + noise * torch.randn(n, generator=g)

    train = [draw(n, share) for share in shares]
    test = [draw(200, share) for share in shares]
    return ClientData.from_arrays(train, test, [int(share < 0.5) for share in shares])


def mixed_labels(
    shares: list[float], n: int = 20, d: int = 6, classes: int = 4, seed: int = 0
) -> ClientData:
    """Classes of random directions; a client's share is the probability of the true class."""
    g = torch.Generator().manual_seed(seed)
    teacher = torch.randn(classes, d, generator=g)

    def draw(n: int, share: float) -> tuple[Tensor, Tensor]:
        x = torch.randn(n, d, generator=g)
        y = (x @ teacher.T).argmax(1)
        return x, torch.where(torch.rand(n, generator=g) < share, y, (y + 1) % classes)

    train = [draw(n, share) for share in shares]
    test = [draw(200, share) for share in shares]
    return ClientData.from_arrays(train, test, [int(share < 0.5) for share in shares])


def on_a_line(width: float, seed: int) -> tuple[ClientData, np.ndarray]:
    """40 regressions on a line between two, without a gap, and their positions from -1 to 1."""
    g = torch.Generator().manual_seed(seed)
    middle, away = torch.randn(2, 6, generator=g)
    positions = torch.linspace(-1, 1, 40)[torch.randperm(40, generator=g)]

    def draw(position: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.randn(40, 6, generator=g)
        return x, x @ (middle + width * position * away) + 0.3 * torch.randn(40, generator=g)

    return ClientData.from_arrays(
        [draw(t) for t in positions], [draw(t) for t in positions]
    ), positions.numpy()
