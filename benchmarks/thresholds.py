"""Does ``threshold="auto"`` find the true clusters? Many federations, several seeds, one setting.

    python benchmarks/thresholds.py --seeds 5                # a table, as in docs/thresholds.md
    python benchmarks/thresholds.py --only synthetic --seed 1000

Needs MNIST (``srfca data get mnist``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from srfca import SRFCA, ClientData, LocalTraining, Partition, Simulation, models
from srfca.data import federate
from srfca.data.loaders import mnist
from srfca.data.partition import Sizes
from srfca.data.transforms import (
    Transform,
    invert,
    only_classes,
    permute_labels,
    rotate,
    unchanged,
)
from srfca.experiments import config, runner

LOCAL = LocalTraining(steps=150, local_steps=5, batch_size=50, optimizer="adam", lr=0.003)
LINEAR_LOCAL = LocalTraining(steps=100, local_steps=5, batch_size=20, lr=0.02)
MODEL = models.mlp(784, 100, 10)
UNEQUAL = (0.7, 0.2, 0.1)

MakeData = Callable[[int], ClientData]
"""From a seed to client data with known clusters."""
MakeTransforms = Callable[[np.random.Generator], Sequence[Transform]]
"""Draws a transform for each cluster."""


@dataclass(frozen=True)
class Case:
    """A federation whose clusters are known.

    Args:
        description: For the table.
        federation: From a seed and a device to the clients.
        local: How they train.
    """

    description: str
    federation: Callable[[int, str], Simulation]
    local: LocalTraining


def case(
    description: str,
    make_data: MakeData,
    model: Callable[[], torch.nn.Module] = MODEL,
    local: LocalTraining = LOCAL,
) -> Case:
    """Return a case with this data and model."""

    def federation(seed: int, device: str) -> Simulation:
        return Simulation(make_data(seed), model, device=device, seed=seed)

    return Case(description, federation, local)


def preset(description: str, name: str, *settings: str) -> Case:
    """Return a case with data, model and local training of a preset experiment."""
    experiment = config.load(name).set(settings)

    def federation(seed: int, device: str) -> Simulation:
        return runner.make_federation(experiment, seed, device)

    return Case(description, federation, runner.make_method(experiment, "sr-fca").local)


def of_mnist(
    make_transforms: MakeTransforms,
    num_clients: int,
    sizes: Sizes,
    shares: Sequence[float] | None = None,
) -> MakeData:
    """Return clients with MNIST images, whose clusters see them through different transforms."""

    def make_data(seed: int) -> ClientData:
        images = mnist.load()
        transforms = make_transforms(np.random.default_rng(seed))
        return federate(
            images.train_x, images.train_y, num_clients=num_clients, clusters=transforms,
            shares=shares, sizes=sizes, test=(images.test_x[:2000], images.test_y[:2000]),
            seed=seed,
        )  # fmt: skip

    return make_data


def rotations(*degrees: float) -> MakeTransforms:
    """Rotate the images by these angles."""
    return lambda rng: [rotate(angle) for angle in degrees]


def permutations(count: int) -> MakeTransforms:
    """Permute the classes randomly."""
    return lambda rng: [permute_labels(rng.permutation(10).tolist()) for _ in range(count)]


def swapped(rng: np.random.Generator) -> Sequence[Transform]:
    """Swap two random classes in the second cluster."""
    first, second = rng.permutation(10)[:2]
    order = np.arange(10)
    order[[first, second]] = order[[second, first]]
    return [unchanged, permute_labels(order.tolist())]


def halves(rng: np.random.Generator) -> Sequence[Transform]:
    """Give each of two clusters five random classes."""
    order = rng.permutation(10)
    return [only_classes(order[:5].tolist()), only_classes(order[5:].tolist())]


def jittered(seed: int) -> ClientData:
    """Return four rotations, with a small random rotation of every client added (eps1 > 0)."""
    angles = np.random.default_rng(seed).normal(0.0, 8.0, 80) + 90 * (np.arange(80) % 4)
    data = of_mnist(rotations(*angles), 80, 100)(seed)
    return replace(data, truth=Partition(np.arange(80) % 4))


def spread(seed: int) -> ClientData:
    """Return three regressions, each client's optimum at some distance from its cluster's."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((3, 20))
    truth = np.arange(60) % 3

    def draw(w: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal((n, 20))
        return x.astype(np.float32), (x @ w + 0.5 * rng.standard_normal(n)).astype(np.float32)

    optima = [centers[cluster] + 0.2 * rng.standard_normal(20) for cluster in truth]
    train = [draw(w, 60) for w in optima]
    return ClientData.from_arrays(train, [draw(w, 60) for w in optima], truth)


def all_cases() -> dict[str, Case]:
    """Return all federations by name."""
    quarters = rotations(0, 90, 180, 270)
    return {
        "rotated-mnist": preset("4 rotations, n = 600", "rotated-mnist"),
        "inverted-mnist": preset("half inverted, n = 600", "inverted-mnist"),
        "rotated-digits": preset("4 rotations of 8x8 digits", "rotated-digits"),
        "two-turned-digits": preset("2 rotations of 8x8 digits", "rotated-digits", "rotations=2"),
        "one-digits": preset("8x8 digits, all alike", "rotated-digits", "rotations=1"),
        "synthetic": preset("2 regressions, d = 1000, n = 100", "synthetic"),
        "one-synthetic": preset("1 regression, d = 1000, n = 100", "synthetic", "data.clusters=1"),
        "few-samples": case("4 rotations, n = 30", of_mnist(quarters, 80, 30)),
        "unequal-rotations": case(
            "3 rotations, 70/20/10 %, n = 100", of_mnist(rotations(0, 90, 180), 80, 100, UNEQUAL)
        ),
        "lognormal-sizes": case("4 rotations, very unequal n", of_mnist(quarters, 80, "lognormal")),
        "two-permutations": case("labels permuted, n = 60", of_mnist(permutations(2), 80, 60)),
        "unequal-permutations": case(
            "labels permuted, 70/20/10 %, n = 60", of_mnist(permutations(3), 80, 60, UNEQUAL)
        ),
        "eight-permutations": case("labels permuted, n = 100", of_mnist(permutations(8), 80, 100)),
        "swapped-labels": case("two labels swapped, n = 200", of_mnist(swapped, 80, 200)),
        "swapped-few": case(
            "two labels swapped, 60/40 %, n = 60", of_mnist(swapped, 80, 60, (0.6, 0.4))
        ),
        "class-subsets": case("5 classes each, n = 100", of_mnist(halves, 80, 100)),
        "inverted-few": case(
            "half inverted, n = 100", of_mnist(lambda rng: [unchanged, invert], 80, 100)
        ),
        "one-mnist": case("all alike, n = 100", of_mnist(rotations(0), 80, 100)),
        "jittered-rotations": case("4 rotations, each client's own +- 8 degrees", jittered),
        "spread-regressions": case(
            "3 regressions, d = 20, spread", spread, models.linear(20), LINEAR_LOCAL
        ),
    }


def run(name: str, case: Case, seed: int, device: str, distances: Path | None) -> dict[str, Any]:
    """Run SR-FCA once.

    Args:
        name: Name of the federation.
        case: The federation.
        seed: Seed of data and run.
        device: Where to run.
        distances: If given, the distances of ONE_SHOT are saved in this folder.

    Returns:
        What SR-FCA found, ready for JSON.
    """
    federation = case.federation(seed, device)
    truth = federation.data.truth
    assert truth is not None
    start = perf_counter()
    result = SRFCA(local=case.local).fit(federation, seed=seed)
    one_shot = result.history[0]
    if distances is not None:
        distances.mkdir(parents=True, exist_ok=True)
        path = distances / f"{name}-{seed}.npz"
        np.savez_compressed(path, distances=one_shot.distances, truth=truth.labels)
    return {
        "federation": name,
        "seed": seed,
        "clients": len(truth),
        "truth": truth.num_clusters,
        "clusters": result.partition.num_clusters,
        "misclustering": result.partition.misclustering(truth),
        "one_shot_clusters": one_shot.partition.num_clusters,
        "one_shot_exact": one_shot.partition == truth,
        "exact": result.partition == truth,
        "reason": one_shot.notes["reason"],
        "seconds": round(perf_counter() - start, 1),
    }


def main() -> None:
    """Run all federations, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="names of some federations")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--distances", type=Path, help="save the distances of ONE_SHOT in this folder"
    )
    arguments = parser.parse_args()
    cases = all_cases()
    chosen = {name: cases[name] for name in cases if name in (arguments.only or cases)}
    runs = []
    for name, chosen_case in chosen.items():
        for seed in range(arguments.seed, arguments.seed + arguments.seeds):
            runs.append(run(name, chosen_case, seed, arguments.device, arguments.distances))
            print(json.dumps(runs[-1]), flush=True)
    print("\n| federation | clients | clusters | found, by seed | exact |\n|---|---|---|---|---|")
    for name, chosen_case in chosen.items():
        of_case = [row for row in runs if row["federation"] == name]
        counts = ", ".join(str(row["clusters"]) for row in of_case)
        exact = sum(bool(row["exact"]) for row in of_case)
        clients, truth = of_case[0]["clients"], of_case[0]["truth"]
        print(
            f"| {name}: {chosen_case.description} | {clients} | {truth} | {counts} | "
            f"{exact} of {len(of_case)} |"
        )
    exact = sum(bool(row["exact"]) for row in runs)
    print(f"\nExact in {exact} of {len(runs)} runs.")


if __name__ == "__main__":
    main()
