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

import numpy as np
import torch

from srfca import SRFCA, ClientData, Simulation, Work, data, models
from srfca.data import federate
from srfca.data.loaders import mnist
from srfca.data.transforms import (
    Transform,
    invert,
    only_classes,
    permute_labels,
    rotate,
    unchanged,
)
from srfca.experiments import config

WORK = Work(steps=150, local_steps=5, batch_size=50, optimizer="adam", lr=0.003)
MODEL = models.mlp(784, 100, 10)
UNEQUAL = (0.7, 0.2, 0.1)


@dataclass(frozen=True)
class Case:
    """A federation whose clusters are known."""

    what: str
    clients: Callable[[int], ClientData]
    model: Callable[[], torch.nn.Module] = MODEL
    work: Work = WORK


def of_mnist(
    make: Callable[[np.random.Generator], Sequence[Transform]],
    clients: int,
    sizes: str | int,
    shares: Sequence[float] | None = None,
) -> Callable[[int], ClientData]:
    """Clients with MNIST images, whose clusters see them through transforms drawn by the seed."""

    def clients_of(seed: int) -> ClientData:
        images = mnist.load()
        transforms = make(np.random.default_rng(seed))
        return federate(
            images.train_x, images.train_y, num_clients=clients, clusters=transforms, shares=shares,
            sizes=sizes, test=(images.test_x[:2000], images.test_y[:2000]), seed=seed,
        )  # fmt: skip

    return clients_of


def turns(*degrees: float) -> Callable[[np.random.Generator], Sequence[Transform]]:
    """Images turned by so many degrees."""
    return lambda rng: [rotate(angle) for angle in degrees]


def permutations(count: int) -> Callable[[np.random.Generator], Sequence[Transform]]:
    """Classes with random names."""
    return lambda rng: [permute_labels(rng.permutation(10).tolist()) for _ in range(count)]


def swapped(rng: np.random.Generator) -> Sequence[Transform]:
    """Two classes that change names in the second cluster."""
    first, second = rng.permutation(10)[:2]
    order = np.arange(10)
    order[[first, second]] = order[[second, first]]
    return [unchanged, permute_labels(order.tolist())]


def halves(rng: np.random.Generator) -> Sequence[Transform]:
    """Five classes each."""
    order = rng.permutation(10)
    return [only_classes(order[:5].tolist()), only_classes(order[5:].tolist())]


def jittered(seed: int) -> ClientData:
    """Four rotations, every client turned by some degrees of its own besides (eps1 > 0)."""
    angles = np.random.default_rng(seed).normal(0.0, 8.0, 80) + 90 * (np.arange(80) % 4)
    made = of_mnist(turns(*angles), 80, 100)(seed)
    return replace(made, truth=data.clients.Partition(np.arange(80) % 4))


def spread(seed: int) -> ClientData:
    """Three regressions, every client's own optimum some way from its cluster's (eps1 > 0)."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((3, 20))
    truth = np.arange(60) % 3

    def draw(w: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal((n, 20))
        return x.astype(np.float32), (x @ w + 0.5 * rng.standard_normal(n)).astype(np.float32)

    own = [centres[c] + 0.2 * rng.standard_normal(20) for c in truth]
    return ClientData.from_arrays([draw(w, 60) for w in own], [draw(w, 60) for w in own], truth)


def preset(what: str, name: str, *settings: str) -> Case:
    """An experiment of ``srfca list``."""
    experiment = config.load(name).set(settings)
    work = Work(**experiment.arguments("work"))

    def clients_of(seed: int) -> ClientData:
        made: ClientData = experiment.callable("data")(**experiment.arguments("data"), seed=seed)
        return made

    model = experiment.callable("model")(**experiment.arguments("model"))
    return Case(what, clients_of, model, work)


LINEAR = Work(steps=100, local_steps=5, batch_size=20, lr=0.02)


def cases() -> dict[str, Case]:
    """All federations by name."""
    return {
        "rotated-mnist": preset("4 rotations, n = 600", "rotated-mnist"),
        "inverted-mnist": preset("half inverted, n = 600", "inverted-mnist"),
        "rotated-digits": preset("4 rotations of 8x8 digits", "rotated-digits"),
        "two-turned-digits": preset("2 rotations of 8x8 digits", "rotated-digits", "rotations=2"),
        "one-digits": preset("8x8 digits, all alike", "rotated-digits", "rotations=1"),
        "synthetic": preset("2 regressions, d = 1000, n = 100", "synthetic"),
        "one-synthetic": preset("1 regression, d = 1000, n = 100", "synthetic", "data.clusters=1"),
        "few-samples": Case("4 rotations, n = 30", of_mnist(turns(0, 90, 180, 270), 80, 30)),
        "unequal-rotations": Case(
            "3 rotations, 70/20/10 %, n = 100", of_mnist(turns(0, 90, 180), 80, 100, UNEQUAL)
        ),
        "lognormal-sizes": Case(
            "4 rotations, very unequal n", of_mnist(turns(0, 90, 180, 270), 80, "lognormal")
        ),
        "two-permutations": Case("labels permuted, n = 60", of_mnist(permutations(2), 80, 60)),
        "unequal-permutations": Case(
            "labels permuted, 70/20/10 %, n = 60", of_mnist(permutations(3), 80, 60, UNEQUAL)
        ),
        "eight-permutations": Case("labels permuted, n = 100", of_mnist(permutations(8), 80, 100)),
        "swapped-labels": Case("two labels swapped, n = 200", of_mnist(swapped, 80, 200)),
        "swapped-few": Case(
            "two labels swapped, 60/40 %, n = 60", of_mnist(swapped, 80, 60, (0.6, 0.4))
        ),
        "class-subsets": Case("5 classes each, n = 100", of_mnist(halves, 80, 100)),
        "inverted-few": Case(
            "half inverted, n = 100", of_mnist(lambda rng: [unchanged, invert], 80, 100)
        ),
        "one-mnist": Case("all alike, n = 100", of_mnist(turns(0), 80, 100)),
        "jittered-rotations": Case("4 rotations, each client's own +- 8 degrees", jittered),
        "spread-regressions": Case(
            "3 regressions, d = 20, spread", spread, models.linear(20), LINEAR
        ),
    }


def found(case: Case, seed: int, device: str, bank: Path | None, name: str) -> dict[str, object]:
    """One run of SR-FCA."""
    made = case.clients(seed)
    clients = Simulation(made, case.model, device=device, seed=seed)
    assert made.truth is not None
    start = perf_counter()
    result = SRFCA(work=case.work).fit(clients, seed=seed)
    if bank is not None:
        bank.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(
            bank / f"{name}-{seed}.npz",
            distances=result.history[0].distances,
            truth=made.truth.labels,
        )
    after = result.history[0].partition
    return {
        "federation": name,
        "seed": seed,
        "clients": len(made.truth),
        "truth": made.truth.num_clusters,
        "clusters": result.partition.num_clusters,
        "misclustering": result.partition.misclustering(made.truth),
        "one_shot_clusters": after.num_clusters,
        "one_shot_exact": after == made.truth,
        "exact": result.partition == made.truth,
        "why": result.history[0].notes["reason"],
        "seconds": round(perf_counter() - start, 1),
    }


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="some of the federations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--bank", type=Path, help="save the distances of ONE_SHOT in this folder")
    arguments = parser.parse_args()
    chosen = {name: case for name, case in cases().items() if name in (arguments.only or cases())}
    rows = []
    for name, case in chosen.items():
        for seed in range(arguments.seed, arguments.seed + arguments.seeds):
            rows.append(found(case, seed, arguments.device, arguments.bank, name))
            print(json.dumps(rows[-1]), flush=True)
    print("\n| federation | clients | clusters | found, by seed | exact |\n|---|---|---|---|---|")
    for name, case in chosen.items():
        mine = [row for row in rows if row["federation"] == name]
        counts = ", ".join(str(row["clusters"]) for row in mine)
        right = sum(bool(row["exact"]) for row in mine)
        told = f"| {name}: {case.what} | {mine[0]['clients']} | {mine[0]['truth']}"
        print(f"{told} | {counts} | {right} of {len(mine)} |")
    right = sum(bool(row["exact"]) for row in rows)
    print(f"\nExact in {right} of {len(rows)} runs.")


if __name__ == "__main__":
    main()
