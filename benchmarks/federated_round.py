"""One federated round of 100 clients x 5 steps of SGD: srfca and the plain loop.

Flower and pfl-research do the same in ``round_flower.py`` and ``round_pfl.py``.
"""

from __future__ import annotations

import numpy as np
import torch
from harness import Contestant, serve
from plain import train
from setting import (
    ROUND,
    ROUND_LR,
    Setting,
    best_threads,
    clients,
    mlp,
    named,
    round_batches,
    row,
    setting,
    threads,
)
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from srfca import ClientData, Simulation, Work
from srfca.methods.rounds import cluster_round, trained_models, weighted_mean
from srfca.random import Key


def contestants(sizes: Setting) -> dict[str, Contestant]:
    """The two that are at home here."""
    w0 = row(mlp(sizes.hidden))
    x, y = clients(sizes)
    data = ClientData.from_arrays(list(zip(x, y, strict=True)))
    federation = Simulation(data, mlp(sizes.hidden), device="cpu", validation=0.0)
    every, together = np.arange(sizes.clients), np.zeros(sizes.clients, dtype=np.int64)
    work = Work(
        steps=1000 * sizes.round_steps, local_steps=sizes.round_steps, batch_size=sizes.batch,
        lr=ROUND_LR,
    )  # fmt: skip
    exchange = trained_models(federation, work)

    def srfca() -> float:
        start = w0.unsqueeze(0)
        after = cluster_round(
            federation, start, every, together, exchange, weighted_mean, Key(0, ROUND)
        )
        return float((after[0] - w0).norm())

    index = round_batches(sizes)
    module = mlp(sizes.hidden)

    def loop(count: int) -> Tensor:
        total = torch.zeros_like(w0)
        for own_x, own_y, at in list(zip(x, y, index, strict=True))[:count]:
            vector_to_parameters(w0.clone(), module.parameters())
            optimizer = torch.optim.SGD(module.parameters(), lr=ROUND_LR)
            train(module, optimizer, zip(own_x[at], own_y[at], strict=True))
            total += row(module)
        return total / count

    count = best_threads(lambda: loop(min(10, sizes.clients)))

    def plain() -> float:
        with threads(count):
            return float((loop(sizes.clients) - w0).norm())

    return {"srfca": srfca, f"plain loop, {named(count)}": plain}


if __name__ == "__main__":
    serve(contestants(setting()))
