"""Distances between networks that start from one random model, or from many.

    python benchmarks/permutations.py --seeds 3

Clients of rotated_digits train alone, from a common w0 or each from a random model of its own. For
each distance the table has the share of pairs (same group, different groups) in the right order,
the clusters at the automatic threshold of ONE_SHOT, and the share of misplaced clients.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from balanced_loss import find_clusters, in_order
from torch import nn

from srfca import LocalTraining, Simulation, data, models
from srfca.distances import ModelSet, distance_named
from srfca.federation import Train
from srfca.models.cnn import WithChannel
from srfca.random import Key

NAMES = ("l2", "matched", "wasserstein", "cross_loss")
STARTS = ("common", "individual")


def convolutional() -> nn.Module:
    """Return two convolutions and two dense layers for 8x8 images."""
    return nn.Sequential(
        WithChannel(), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


NETWORKS = {"MLP 64-32-10": models.mlp(64, 32, 10), "CNN": convolutional}


def local_models(federation: Simulation, start: str, local: LocalTraining, seed: int) -> ModelSet:
    """Train every client alone, from a common start or from a random model of its own."""
    m = len(federation.client_ids)
    seeds = [seed] * m if start == "common" else range(seed * m, seed * m + m)
    starts = torch.stack([federation.initial_model(number) for number in seeds])
    request = Train(np.arange(m), starts, local, Key(seed, "one_shot"))
    return ModelSet.of_clients(federation, federation.ask(request).values)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--rotations", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    arguments = parser.parse_args()
    local = LocalTraining(steps=arguments.steps, local_steps=arguments.steps, batch_size=10, lr=0.3)
    print("| network | start | distance | in order | clusters | misplaced |")
    print("|---|---|---|---|---|---|")
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    for network, model in NETWORKS.items():
        for start in STARTS:
            found: dict[str, list[tuple[float, int, float]]] = {name: [] for name in NAMES}
            for seed in seeds:
                clients = data.rotated_digits(
                    num_clients=arguments.clients, rotations=arguments.rotations, seed=seed
                )
                federation = Simulation(clients, model, seed=seed)
                trained, truth = local_models(federation, start, local, seed), clients.truth
                assert truth is not None
                for name in NAMES:
                    distances = distance_named(name)(trained, trained)
                    np.fill_diagonal(distances, 0.0)
                    order = in_order(distances, truth.labels)
                    found[name].append((order or 0.0, *find_clusters(distances, truth)))
            for name, runs in found.items():
                orders, clusters, misplaced = zip(*runs, strict=True)
                print(
                    f"| {network} | {start} | `{name}` | {np.mean(orders):.3f} | "
                    f"{', '.join(map(str, clusters))} | {np.mean(misplaced):.1%} |"
                )


if __name__ == "__main__":
    main()
