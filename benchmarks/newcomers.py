"""Are newcomers placed in the right cluster, and rejected if they belong to none?

    python benchmarks/newcomers.py --seed 1000 --seeds 3 --fashion FOLDER

Federations of 60 clients with 120 images each, in groups with rotated images or permuted labels;
and 100 writers of FEMNIST, whose images are transposed in every other client. SR-FCA finds the
clusters. Newcomers have 20 to 300 other images, or are other writers:

- known: of one of the groups;
- far: of a rotation, or a permutation of the labels, that no group has (inverted, if all rotations
  by 90 degrees are there; rotated by 180 degrees, for FEMNIST);
- turned: of one of the groups, and rotated by 30 degrees more;
- swapped: of one of the groups, with two labels swapped.

Without labels, only their images are used. Then swapped newcomers are like known ones, and groups
that differ by their labels alone cannot be told apart: nobody may be placed there.

Needs MNIST (``srfca data get mnist``). ``--fashion`` is a folder with Fashion-MNIST's files, on
Debian /usr/share/datasets/fashion-mnist of the package dataset-fashion-mnist. ``--femnist`` needs
the json files of LEAF's FEMNIST.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from srfca import SRFCA, ClientData, LocalTraining, Result, Simulation, models
from srfca.data import federate
from srfca.data.loaders import femnist, mnist
from srfca.data.transforms import Array, Transform, invert, permute_labels, rotate

LOCAL = LocalTraining(steps=150, local_steps=5, batch_size=50, optimizer="adam", lr=0.003)
SIZES = (20, 50, 100, 300)
"""Samples of a newcomer."""
Draw = Callable[[int, np.random.Generator], Transform]
"""From the number of a newcomer to what is done to its images and labels."""


@dataclass(frozen=True)
class Groups:
    """The groups of a federation, and newcomers.

    Args:
        degrees: Rotation of each group.
        orders: Permutation of the labels of each group.
        far: Makes newcomers that belong to no group.
    """

    degrees: list[int]
    orders: list[list[int]]
    far: Draw

    def transform(self, group: int, more: float = 0.0) -> Transform:
        """Return what is done to the images and labels of a group, and turn by some degrees."""
        return chain(rotate(self.degrees[group] + more), permute_labels(self.orders[group]))

    def newcomers(self) -> dict[str, Draw]:
        """Return the kinds of newcomers by name."""
        count = len(self.degrees)
        return {
            "known": lambda number, rng: self.transform(number % count),
            "far": self.far,
            "turned": lambda number, rng: self.transform(number % count, 30.0),
            "swapped": lambda number, rng: chain(self.transform(number % count), swap(rng)),
        }


def chain(first: Transform, second: Transform) -> Transform:
    """Return a transform that does one after the other."""
    return lambda x, y: second(*first(x, y))


def swap(rng: np.random.Generator) -> Transform:
    """Swap two random classes."""
    first, second = rng.permutation(10)[:2]
    order = np.arange(10)
    order[[first, second]] = order[[second, first]]
    return permute_labels(order.tolist())


def rotations(*degrees: int) -> Callable[[np.random.Generator], Groups]:
    """Return groups whose images are rotated; far newcomers have another rotation by 90 degrees."""
    others = [angle for angle in (0, 90, 180, 270) if angle not in degrees]

    def far(number: int, rng: np.random.Generator) -> Transform:
        return rotate(others[number % len(others)]) if others else invert

    return lambda rng: Groups(list(degrees), [list(range(10))] * len(degrees), far)


def permutations(count: int) -> Callable[[np.random.Generator], Groups]:
    """Return groups whose labels are permuted; far newcomers have another permutation."""

    def far(number: int, rng: np.random.Generator) -> Transform:
        return permute_labels(rng.permutation(10).tolist())

    def groups(rng: np.random.Generator) -> Groups:
        return Groups([0] * count, [rng.permutation(10).tolist() for _ in range(count)], far)

    return groups


FEDERATIONS = {
    "3 rotations": rotations(0, 90, 180),
    "4 rotations": rotations(0, 90, 180, 270),
    "3 label permutations": permutations(3),
}


class ImageFederation:
    """Clients with images of MNIST or Fashion-MNIST.

    Args:
        folder: Where the images are; None is the data folder.
        name: One of ``FEDERATIONS``.
        seed: Seed of data and run.
        num_clients: Clients of the federation.
        num_samples: Training images of each.
    """

    model = models.mlp(784, 64, 10)

    def __init__(
        self, folder: str | None, name: str, seed: int, num_clients: int, num_samples: int
    ) -> None:
        self.images = mnist.load(folder)
        self.rng = np.random.default_rng(seed)
        self.groups = FEDERATIONS[name](self.rng)
        self.num_groups = len(self.groups.degrees)
        transforms = [self.groups.transform(group) for group in range(self.num_groups)]
        data = federate(
            self.images.train_x, self.images.train_y, num_clients=num_clients,
            clusters=transforms, sizes=num_samples, standardize="no", seed=seed,
        )  # fmt: skip
        self.federation = Simulation(data, self.model, seed=seed, device="cpu")
        self.result = find_clusters(self.federation, LOCAL, seed)
        self.kinds = self.groups.newcomers()

    def newcomers(self, kind: str, size: int, count: int) -> ClientData:
        """Return newcomers with test images, which no client of the federation has."""
        clients = []
        for number in range(count):
            chosen = self.rng.permutation(len(self.images.test_x))[:size]
            transform = self.kinds[kind](number, self.rng)
            x, y = transform(self.images.test_x[chosen], self.images.test_y[chosen])
            clients.append((np.ascontiguousarray(x).astype(np.float32) / 255, y))
        return ClientData.from_arrays(clients)


class WriterFederation:
    """Writers of FEMNIST; the images of every other one are transposed.

    Args:
        seed: Seed of data and run.
        num_clients: Writers of the federation.
    """

    model = models.mlp(784, 64, 62)
    num_groups = 2

    def __init__(self, seed: int, num_clients: int = 100) -> None:
        self.writers = femnist.load().at_least(total=100, test=1)
        self.rng = np.random.default_rng(seed)
        order = self.rng.permutation(len(self.writers)).tolist()
        members, self.others = order[:num_clients], order[num_clients:]
        truth = [number % 2 for number in range(num_clients)]
        clients = [transposed(self.of(w), g) for w, g in zip(members, truth, strict=True)]
        data = ClientData.from_arrays(clients, truth=truth)
        self.federation = Simulation(data, self.model, seed=seed, device="cpu")
        self.result = find_clusters(self.federation, replace(LOCAL, steps=300), seed)
        turns = {"known": 0.0, "far": 180.0, "turned": 30.0}
        self.kinds = {kind: rotate(degrees) for kind, degrees in turns.items()}

    def of(self, writer: int) -> tuple[Array, Array]:
        """Return all images of a writer, ink 1 and paper 0, and their classes."""
        parts = [part.of(writer) for part in (self.writers.train, self.writers.test)]
        x = np.concatenate([x for x, _ in parts]).reshape(-1, 28, 28).astype(np.float32)
        ink = 1 - x / np.float32(255 if x.max() > 1 else 1)
        return ink, np.concatenate([y for _, y in parts]).astype(np.int64)

    def newcomers(self, kind: str, size: int, count: int) -> ClientData:
        """Return other writers, with at most this many images."""
        clients = []
        for number in range(count):
            x, y = self.of(self.others[number // 2 % len(self.others)])
            chosen = self.rng.permutation(len(x))[:size]
            part = self.kinds[kind](x[chosen], y[chosen])
            clients.append(transposed(part, number % 2))
        return ClientData.from_arrays(clients)


def transposed(samples: tuple[Array, Array], group: int) -> tuple[Array, Array]:
    """Return images that are transposed in group 1."""
    x, y = samples
    return np.ascontiguousarray(x.transpose(0, 2, 1) if group else x), y


def find_clusters(federation: Simulation, local: LocalTraining, seed: int) -> Result:
    """Return what SR-FCA finds, with statistics of the inputs."""
    result = SRFCA(local=local).fit(federation, seed=seed)
    return result.with_input_statistics(federation)


def assess(case: ImageFederation | WriterFederation, count: int) -> Iterator[dict[str, Any]]:
    """Yield what happens to newcomers of every kind and size."""
    truth = case.federation.data.truth
    assert truth is not None
    expected = np.arange(count) % case.num_groups
    for kind in case.kinds:
        for size in SIZES:
            newcomers = Simulation(case.newcomers(kind, size, count), case.model, device="cpu")
            for labels in (True, False):
                assignment = case.result.assign(newcomers, labels=labels)
                placed = assignment.labels >= 0
                yield {
                    "exact": case.result.partition == truth,
                    "kind": kind,
                    "n": size,
                    "labels": labels,
                    "newcomers": count,
                    "rejected": int((~placed).sum()),
                    "right": int((placed & (assignment.labels == expected)).sum()),
                    "largest_score": float(assignment.scores.min(1).max()),
                    "median_confidence": float(np.median(assignment.confidence)),
                }


def table(rows: list[dict[str, Any]], labels: bool) -> str:
    """Return a table in Markdown: how many newcomers were placed or rejected as they should."""
    lines = ["| data | federation | newcomers | " + " | ".join(f"n = {n}" for n in SIZES) + " |"]
    lines.append("|" + "---|" * (3 + len(SIZES)))
    for data, name in dict.fromkeys((row["data"], row["federation"]) for row in rows):
        kinds = {row["kind"] for row in rows if row["data"] == data}
        for kind, verdict in verdicts(name, labels).items():
            if kind not in kinds:
                continue
            cells = []
            for size in SIZES:
                key = (data, name, kind, size, labels)
                names = ("data", "federation", "kind", "n", "labels")
                chosen = [row for row in rows if tuple(row[name] for name in names) == key]
                good = sum(row["right" if verdict == "placed" else "rejected"] for row in chosen)
                cells.append(f"{good} of {sum(row['newcomers'] for row in chosen)}")
            lines.append(f"| {data} | {name} | {kind}: {verdict} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdicts(federation: str, labels: bool) -> dict[str, str]:
    """Return what should happen to each kind of newcomers.

    Without labels, swapped newcomers are like known ones. If groups differ by their labels alone,
    so are far ones, and known ones must be left open.
    """
    if labels:
        kinds = {"far": "rejected", "turned": "rejected", "swapped": "rejected"}
        return {"known": "placed", **kinds}
    if federation.endswith("permutations"):
        return {"known": "left open", "turned": "rejected"}
    return {"known": "placed", "far": "rejected", "turned": "rejected"}


def main() -> None:
    """Assess newcomers of all federations, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--newcomers", type=int, default=100, help="of each kind and size")
    parser.add_argument("--clients", type=int, default=60, help="clients of the federation")
    parser.add_argument("--samples", type=int, default=120, help="training images of each client")
    parser.add_argument("--fashion", help="folder of Fashion-MNIST's files; without it only MNIST")
    parser.add_argument("--only", choices=list(FEDERATIONS), nargs="*", help="some federations")
    parser.add_argument("--femnist", action="store_true", help="also writers of FEMNIST")
    options = parser.parse_args()
    folders: dict[str, str | None] = {"MNIST": None}
    if options.fashion:
        folders["Fashion-MNIST"] = options.fashion
    seeds = range(options.seed, options.seed + options.seeds)
    rows: list[dict[str, Any]] = []

    def run(
        data: str, name: str, make: Callable[[int], ImageFederation | WriterFederation]
    ) -> None:
        for seed in seeds:
            for row in assess(make(seed), options.newcomers):
                rows.append({"data": data, "federation": name, "seed": seed, **row})
                print(json.dumps(rows[-1]), flush=True)

    for data, folder in folders.items():
        for name in options.only or FEDERATIONS:
            size = (options.clients, options.samples)
            run(data, name, partial(make_images, folder, name, size))
    if options.femnist:
        run("FEMNIST", "half transposed", WriterFederation)
    print(f"\nWith labels:\n\n{table(rows, labels=True)}")
    print(f"\nWithout labels:\n\n{table(rows, labels=False)}")


def make_images(folder: str | None, name: str, size: tuple[int, int], seed: int) -> ImageFederation:
    """Return a federation of ``size`` clients and images of each."""
    return ImageFederation(folder, name, seed, *size)


if __name__ == "__main__":
    main()
