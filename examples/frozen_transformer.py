"""A pretrained transformer that stays frozen, and small adapters for 50 clients.

The backbone is held once and never sent. What travels, and what every client has a copy of, is the
trained part alone: low-rank adapters (LoRA: Hu et al., ICLR 2022) and the head.

    python examples/frozen_transformer.py
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from srfca import SRFCA, LocalTraining, Simulation
from srfca.data import federate
from srfca.data.transforms import rotate, unchanged

WIDTH, HEADS, LAYERS, RANK = 64, 4, 3, 4


class LoRALinear(nn.Module):
    """A frozen linear layer with a trained low-rank update, which starts at zero."""

    def __init__(self, base: nn.Linear, rank: int = RANK) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the frozen layer plus the update."""
        return torch.as_tensor(self.base(x) + x @ self.down.T @ self.up.T)


class TransformerLayer(nn.Module):
    """Self-attention and a feed-forward network, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.expand, self.contract = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Transform sequences ``[n, length, WIDTH]``."""
        n, length, _ = x.shape
        parts = self.qkv(self.norm1(x)).view(n, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / (WIDTH // HEADS) ** 0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, length, WIDTH))
        return torch.as_tensor(x + self.contract(torch.relu(self.expand(self.norm2(x)))))


class Transformer(nn.Module):
    """Reads an 8x8 image as a sequence of eight rows."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, WIDTH)
        self.position = nn.Parameter(0.02 * torch.randn(8, WIDTH))
        self.layers = nn.Sequential(*(TransformerLayer() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``[n, 10]`` of images ``[n, ...]`` of 64 pixels."""
        tokens = self.embed(x.reshape(len(x), 8, 8)) + self.position
        return torch.as_tensor(self.head(self.layers(tokens).mean(1)))


def pretrain(x: Tensor, y: Tensor, steps: int = 200) -> Transformer:
    """Train the whole network on some images and labels."""
    torch.manual_seed(0)
    model = Transformer()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(steps):
        batch = torch.randint(len(x), (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    return model


def with_adapters(model: Transformer) -> Transformer:
    """Freeze a network, and add adapters to its attention and a new head."""
    model.requires_grad_(False)
    for layer in model.layers:
        assert isinstance(layer, TransformerLayer)
        layer.qkv = LoRALinear(layer.qkv)  # type: ignore[assignment]
        layer.out = LoRALinear(layer.out)  # type: ignore[assignment]
    model.head = nn.Linear(WIDTH, 10)
    return model


def main(num_clients: int = 50, steps: int = 60) -> None:
    """Pretrain on some digits; the clients have others, half of them upside down."""
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) / 16 - 0.3).astype(np.float32)
    backbone = pretrain(torch.tensor(images[:500]), torch.tensor(labels[:500]))
    total = sum(p.numel() for p in backbone.parameters())
    model = with_adapters(backbone)
    clients = federate(
        images[500:1500], labels[500:1500], num_clients=num_clients,
        clusters=[unchanged, rotate(180)], test=(images[1500:], labels[1500:]), standardize="no",
    )  # fmt: skip
    federation = Simulation(clients, model)
    local = LocalTraining(steps=steps, local_steps=10, batch_size=10, optimizer="adam", lr=3e-3)
    result = SRFCA(local=local, refine_steps=1).fit(federation)
    trained = len(federation.initial_model(0))
    down = result.budget.bytes_down / num_clients
    accuracy = result.scores(federation).accuracy
    assert accuracy is not None
    print(federation)
    print(f"parameters: {total:,} in the network, {trained:,} trained ({trained / total:.1%})")
    print(f"models of {num_clients} clients: {4 * trained * num_clients / 1e6:.1f} MB in memory, "
          f"{4 * total * num_clients / 1e6:.1f} MB if the whole network were trained")  # fmt: skip
    print(f"received per client: {down / 1e6:.2f} MB, {down / trained * total / 1e6:.2f} MB if the "
          "whole network were sent")  # fmt: skip
    print(result.summary())
    print(f"test accuracy {accuracy.mean():.1%}, misclustered "
          f"{result.partition.misclustering(clients.truth):.1%}")  # type: ignore[arg-type]  # fmt: skip


if __name__ == "__main__":
    main()
