"""Does label skew mislead distances? Plain cross loss against class-balanced cross loss.

    python benchmarks/balanced_loss.py --folder fashion-mnist --seed 1000 --seeds 2

Clients of Fashion-MNIST train alone (MLP 784-64-10, 150 steps of Adam). Three groups differ by
rotation or by a permutation of the labels; inside them, every client's classes are equally common,
or drawn from a Dirichlet distribution. For each distance the table shows

- the share of (same group, different groups) pairs of distances that are in the right order,
- the share of pairs that are unknown, because they share fewer than two classes,
- the three leading eigenvalues of the centered log distances (groups are K - 1 large ones),
- the clusters that the automatic threshold finds, with the fraction of misplaced clients,
- the time of its requests for all pairs of clients.

``--folder`` has the four files of the data set, gzipped (train-images-idx3-ubyte.gz, ...).
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca import ClientData, LocalTraining, Partition, Simulation, models
from srfca.clustering.graph import cluster_graph
from srfca.clustering.matrix import comparable_subset, known_pairs
from srfca.clustering.threshold import choose_threshold
from srfca.data.transforms import Transform, permute_labels, rotate
from srfca.distances import DISTANCES, ModelSet
from srfca.federation import Train
from srfca.random import Key

LOCAL = LocalTraining(steps=150, local_steps=150, batch_size=50, optimizer="adam", lr=0.003)
NAMES = ("cross_loss", "balanced_cross_loss", "presence_balanced_cross_loss")
TIMES = 3
"""Repetitions of the requests; the fastest counts."""

Matrix = NDArray[np.float64]
MakeTransforms = Callable[[np.random.Generator], Sequence[Transform]]


def rotations(rng: np.random.Generator) -> Sequence[Transform]:
    """Rotate by 0, 90 and 180 degrees."""
    return [rotate(0), rotate(90), rotate(180)]


def permutations(rng: np.random.Generator) -> Sequence[Transform]:
    """Permute the classes at random, three times."""
    return [permute_labels(rng.permutation(10).tolist()) for _ in range(3)]


def one_group(rng: np.random.Generator) -> Sequence[Transform]:
    """Change nothing."""
    return [rotate(0)]


CASES: dict[str, tuple[MakeTransforms, float | None]] = {
    "3 rotations, Dirichlet(0.3) inside": (rotations, 0.3),
    "3 permutations, Dirichlet(0.3) inside": (permutations, 0.3),
    "3 rotations, Dirichlet(1) inside": (rotations, 1.0),
    "3 permutations, Dirichlet(1) inside": (permutations, 1.0),
    "3 rotations": (rotations, None),
    "3 permutations": (permutations, None),
    "one group": (one_group, None),
    "one group, Dirichlet(0.3)": (one_group, 0.3),
}
"""Transforms of the groups, and the concentration of the classes; None is equally common."""


def read(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the training images ``[n, 28, 28]`` and labels of the four idx files in a folder."""
    images = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28)
    return pixels, np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)


def deal(
    labels: NDArray[np.int64], m: int, n: int, alpha: float | None, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Deal samples to m clients, n each, none twice; each client draws its own class shares."""
    stacks = [rng.permutation(np.flatnonzero(labels == c)).tolist() for c in range(10)]
    uniform = np.full((m, 10), 0.1)
    shares = uniform if alpha is None else rng.dirichlet(np.full(10, alpha), m)
    counts = [rng.multinomial(n, share) for share in shares]
    return [
        np.array([stacks[c].pop() for c in range(10) for _ in range(numbers[c])])
        for numbers in counts
    ]


def make_data(
    folder: Path, transforms: MakeTransforms, alpha: float | None, m: int, n: int, seed: int
) -> ClientData:
    """Return clients in groups, in turn."""
    rng = np.random.default_rng(seed)
    x, y = read(folder)
    groups = transforms(rng)
    truth = np.arange(m) % len(groups)
    clients = []
    for group, chosen in zip(truth, deal(y, m, n, alpha, rng), strict=True):
        pixels = x[chosen].astype(np.float32) / 255
        clients.append(groups[group](pixels, y[chosen]))
    parts = [(np.ascontiguousarray(pixels), labels) for pixels, labels in clients]
    return ClientData.from_arrays(parts, truth=truth)


def in_order(distances: Matrix, labels: NDArray[np.int64]) -> float | None:
    """Return the share of known (same, different) pairs in the right order, None for one group."""
    is_known, same = np.triu(known_pairs(distances)), labels[:, None] == labels
    near, far = distances[is_known & same], np.sort(distances[is_known & ~same])
    if not len(far):
        return None
    below = np.searchsorted(far, near, "left") + np.searchsorted(far, near, "right")
    return float(1 - below.mean() / 2 / len(far))


def leading_eigenvalues(distances: Matrix) -> list[float]:
    """Return the three largest eigenvalues of log distances, centered over what is known."""
    is_known = known_pairs(distances)
    logs = np.log(np.where(is_known, np.maximum(distances, 1e-9), 1.0))
    for _ in range(50):
        logs = np.where(
            is_known, logs - logs.sum(1, keepdims=True) / is_known.sum(1, keepdims=True), 0.0
        )
        logs = logs.T
    values = np.sort(np.abs(np.linalg.eigvalsh((logs + logs.T) / 2)))[::-1]
    return [round(float(value), 1) for value in values[:3]]


def find_clusters(distances: Matrix, truth: Partition) -> tuple[int, float]:
    """Return the number of clusters at the automatic threshold, and the misplaced fraction.

    No groups are one cluster. Clients that cannot be compared with a quarter of the others are in
    no cluster, and count as misplaced.
    """
    subset = comparable_subset(distances)
    choice = choose_threshold(distances[np.ix_(subset, subset)], "auto", min_size=2)
    if choice.graph is None:
        partition = Partition(np.zeros(len(distances), dtype=np.int64))
    else:
        partition = cluster_graph(choice.graph).drop_smaller_than(2).embed(subset, len(distances))
    return partition.num_clusters, partition.misclustering(truth)


def measure(data: ClientData, seed: int, device: str) -> dict[str, dict[str, Any]]:
    """Train the clients alone, and return the measurements of each distance."""
    federation = Simulation(data, models.mlp(784, 64, 10), device=device, seed=seed)
    clients, truth = np.arange(len(data)), data.truth
    assert truth is not None
    starts = federation.initial_model(seed).repeat(len(data), 1)
    rows = federation.ask(Train(clients, starts, LOCAL, Key(seed, "one_shot"))).values
    rows_by_name = {}
    for name in NAMES:
        seconds = []
        for _ in range(TIMES):
            local_models = ModelSet.of_clients(federation, rows)
            start = perf_counter()
            distances = DISTANCES[name](local_models, local_models)
            seconds.append(perf_counter() - start)
        np.fill_diagonal(distances, 0.0)
        num_clusters, misplaced = find_clusters(distances, truth)
        rows_by_name[name] = {
            "in_order": in_order(distances, truth.labels),
            "unknown": float(np.isnan(distances).mean()),
            "eigenvalues": leading_eigenvalues(distances),
            "clusters": num_clusters,
            "misplaced": misplaced,
            "seconds": min(seconds),
        }
    return rows_by_name


def main() -> None:
    """Run all cases, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="with the files of the data set")
    parser.add_argument("--clients", type=int, default=60)
    parser.add_argument("--samples", type=int, default=150, help="of each client")
    parser.add_argument("--seed", type=int, default=1000, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--only", nargs="*", help="parts of the names of cases")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    lines = []
    for case, (transforms, alpha) in CASES.items():
        if arguments.only and not any(part in case for part in arguments.only):
            continue
        runs = []
        for seed in range(arguments.seed, arguments.seed + arguments.seeds):
            data = make_data(
                arguments.folder, transforms, alpha, arguments.clients, arguments.samples, seed
            )
            runs.append(measure(data, seed, arguments.device))
            print(json.dumps({"case": case, "seed": seed, **runs[-1]}), flush=True)
        lines += [table_row(case, name, [run[name] for run in runs]) for name in NAMES]
    print(
        "\n| federation | distance | in order | unknown | eigenvalues (first seed) "
        "| clusters, by seed | misplaced | seconds |\n|---|---|---|---|---|---|---|---|"
    )
    print("\n".join(lines))


def table_row(case: str, name: str, runs: list[dict[str, Any]]) -> str:
    """Return the row of a case and a distance: means over the seeds."""
    ordered = [run["in_order"] for run in runs if run["in_order"] is not None]
    cells = [
        case,
        name,
        f"{np.mean(ordered):.3f}" if ordered else "",
        f"{np.mean([run['unknown'] for run in runs]):.0%}",
        ", ".join(map(str, runs[0]["eigenvalues"])),
        ", ".join(str(run["clusters"]) for run in runs),
        f"{np.mean([run['misplaced'] for run in runs]):.1%}",
        f"{np.mean([run['seconds'] for run in runs]):.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
