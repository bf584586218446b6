"""FedRC and FedEM on two concepts with label skew: are the clusters concepts, or classes?

    python benchmarks/concepts.py --seed 100 --seeds 8

Four Gaussian kinds of input, 16 clients with 60 training samples, a linear classifier. Half of the
clients name kind c as class c, the others as class c + shift, modulo 4. A share of each client's
samples is of two kinds, the same ones for half of the clients of each concept. With a shift of 2
clients of different concepts then have the same common classes. Both methods get two clusters.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from srfca import ClientData, LocalTraining, Simulation
from srfca.methods import FedEM, FedRC

KINDS, FEATURES, CLIENTS = 4, 8, 16
LOCAL = LocalTraining(steps=80, local_steps=4, batch_size=20, lr=0.1)


def skewed_concepts(seed: int, skew: float, shift: int) -> ClientData:
    """Return clients of two concepts; the truth is the concept.

    Args:
        seed: Seed of the draws.
        skew: The share of each client's samples that is of its two common kinds.
        shift: How far the second concept moves the classes.
    """
    generator = torch.Generator().manual_seed(seed)
    centers = 2 * torch.randn(KINDS, FEATURES, generator=generator)

    def draw(n: int, client: int) -> tuple[Tensor, Tensor]:
        common = torch.rand(n, generator=generator) < skew
        side = client // 2 % 2
        pair = torch.where(common, side, 1 - side)
        kinds = torch.randint(2, (n,), generator=generator) + 2 * pair
        x = centers[kinds] + torch.randn(n, FEATURES, generator=generator)
        return x, (kinds + shift * (client % 2)) % KINDS

    clients = range(CLIENTS)
    train, test = ([draw(n, client) for client in clients] for n in (60, 40))
    return ClientData.from_arrays(train, test, [client % 2 for client in clients])


def classifier() -> nn.Module:
    """Return a linear classifier."""
    return nn.Linear(FEATURES, KINDS)


def main() -> None:
    """Print how often the concepts are found, and the test accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1000, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    print("| skew | shift | start | FedRC: exact | FedEM: exact | FedRC % | FedEM % |")
    print("|---|---|---|---|---|---|---|")
    starts: tuple[Any, ...] = ("random", "clients", "distant")
    for skew, shift, start in product((0.7, 0.8, 0.9), (1, 2), starts):
        exact, accuracy = np.zeros(2, dtype=int), np.zeros((2, len(seeds)))
        methods = (
            FedRC(max_clusters=2, start=start, local=LOCAL),
            FedEM(k=2, start=start, local=LOCAL),
        )
        for number, seed in enumerate(seeds):
            federation = Simulation(skewed_concepts(seed, skew, shift), classifier)
            for index, method in enumerate(methods):
                result = method.fit(federation, seed=seed)
                exact[index] += result.partition == federation.data.truth
                scores = result.scores(federation)
                assert scores.accuracy is not None
                accuracy[index, number] = 100 * float(scores.accuracy.mean())
        means = " | ".join(f"{values.mean():.1f} ± {values.std():.1f}" for values in accuracy)
        counts = " | ".join(f"{count} of {len(seeds)}" for count in exact)
        print(f"| {skew} | {shift} | {start} | {counts} | {means} |", flush=True)


if __name__ == "__main__":
    main()
