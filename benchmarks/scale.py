"""SR-FCA on 100 to 100,000 clients: time and peak memory of each stage, and how they grow.

    python benchmarks/scale.py                    # regressions and small images, few distances
    python benchmarks/scale.py --figure scale.png # and a figure (needs matplotlib)

All pairs of distances are asked for beside it, as far as they go (up to ``--full`` clients). Every
run is a process of its own. The clustering stages are ONE_SHOT without its local training,
RECLUSTER and MERGE; at most 1,000 clients take part in a round of training.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srfca import SRFCA, ClientData, Partition, Simulation, Work, models
from srfca.data import Samples
from srfca.federation.base import Tick, silent

SIZES = (100, 1_000, 10_000, 100_000)
GROUPS, DIMENSION, SAMPLES = 4, 20, 30
TAKING_PART = 1_000
CLUSTERING = ("clustering", "RECLUSTER 1", "MERGE 1")

Draw = Callable[[int], tuple[Tensor, Tensor]]
"""So many samples of every client: x ``[m, n, ...]`` and y ``[m, n]``."""


def regressions(count: int, seed: int) -> ClientData:
    """Linear regressions, d = 20, four groups."""
    g = torch.Generator().manual_seed(seed)
    optima = torch.randn(GROUPS, DIMENSION, generator=g)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, n, DIMENSION, generator=g)
        w = optima[torch.arange(count) % GROUPS]
        return x, torch.einsum("cnd,cd->cn", x, w) + 0.3 * torch.randn(count, n, generator=g)

    return clients(count, draw)


def images(count: int, seed: int) -> ClientData:
    """8x8 images of ten classes: a pattern and noise, turned by a quarter for each group."""
    g = torch.Generator().manual_seed(seed)
    patterns = torch.randn(10, 8, 8, generator=g)
    turned = torch.stack([torch.rot90(patterns, turn, (1, 2)) for turn in range(GROUPS)])

    def draw(n: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(10, (count, n), generator=g)
        x = turned[(torch.arange(count) % GROUPS).unsqueeze(1), y].flatten(2)
        return x + torch.randn(x.shape, generator=g), y

    return clients(count, draw)


def clients(count: int, draw: Draw) -> ClientData:
    """Clients whose groups go round."""

    def samples(n: int) -> Samples:
        x, y = draw(n)
        return Samples(x.flatten(0, 1), y.flatten(), torch.full((count,), n))

    names = tuple(str(client) for client in range(count))
    truth = Partition(np.arange(count) % GROUPS)
    return ClientData(names, samples(SAMPLES), samples(10), truth)


KINDS: dict[str, tuple[Callable[[int, int], ClientData], Any, Work]] = {
    "linear": (regressions, models.linear(DIMENSION), Work(steps=50, batch_size=10, lr=0.05)),
    "images": (images, models.mlp(64, 16, 10), Work(steps=50, batch_size=10, lr=0.2)),
}


class LocalTraining:
    """A monitor that times the local training of ONE_SHOT by its last step."""

    def __init__(self) -> None:
        self.began = self.ended = 0.0

    @contextmanager
    def stage(self, name: str, steps: int) -> Iterator[Tick]:
        """Enter a stage."""
        if name != "ONE_SHOT":
            yield silent
            return
        self.began = perf_counter()

        def tick(done: int) -> None:
            self.ended = perf_counter()

        yield tick


@dataclass(frozen=True)
class Row:
    """The figures of one run."""

    kind: str
    clients: int
    pairs: str
    seconds: float
    stages: dict[str, float]
    peak_gib: float
    """Of the whole process, data included."""
    data_gib: float
    """The same before the method began."""
    evaluations: int
    clusters: int
    misclustering: float

    @property
    def clustering(self) -> float:
        """Seconds of the clustering stages."""
        return sum(self.stages[name] for name in CLUSTERING)


def one(kind: str, count: int, full: bool, seed: int) -> Row:
    """One run, in this process."""
    make, model, work = KINDS[kind]
    made = make(count, seed)
    federation = Simulation(made, model, seed=seed)
    before = _peak()
    method = SRFCA(
        work=work, refine_steps=1, all_pairs=count if full else 0,
        participation=min(1.0, TAKING_PART / count),
    )  # fmt: skip
    monitor = LocalTraining()
    start = perf_counter()
    result = method.fit(federation, seed=seed, monitor=monitor)
    seconds = perf_counter() - start
    stages = {stage.name: stage.seconds for stage in result.history}
    alone = monitor.ended - monitor.began
    stages = {"local training": alone, "clustering": stages.pop("ONE_SHOT") - alone} | stages
    assert made.truth is not None
    return Row(
        kind, count, "all" if full else "few", seconds, stages, _peak(), before,
        result.budget.evaluations, result.partition.num_clusters,
        result.partition.misclustering(made.truth),
    )  # fmt: skip


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def exponent(rows: Sequence[Row], least: int = 1_000) -> float:
    """The slope of log time of the clustering stages over log m, from ``least`` clients on."""
    rows = [row for row in rows if row.clients >= least]
    m, seconds = ([np.log(value) for value in column] for column in zip(
        *((row.clients, row.clustering) for row in rows), strict=True
    ))  # fmt: skip
    return float(np.polyfit(m, seconds, 1)[0])


def table(rows: Sequence[Row]) -> str:
    """All runs in Markdown."""
    lines = [
        "| kind | clients | pairs | local training | clustering | training | RECLUSTER | MERGE | "
        "whole, s | peak GiB | evaluations | clusters | misclustered |",
        "|---" * 13 + "|",
    ]
    for row in rows:
        names = ("local training", "clustering", "TRIMMED_MEAN_GD 1", "RECLUSTER 1", "MERGE 1")
        seconds = " | ".join(f"{row.stages[name]:.1f}" for name in names)
        lines.append(
            f"| {row.kind} | {row.clients:,} | {row.pairs} | {seconds} | {row.seconds:.1f} | "
            f"{row.peak_gib:.1f} | {row.evaluations:,} | {row.clusters} | {row.misclustering:.2%} |"
        )
    return "\n".join(lines)


def figure(rows: Sequence[Row], path: Path) -> None:
    """Time of the clustering stages over the number of clients."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(1, 2, figsize=(9, 3.6))
    for kind in KINDS:
        for pairs, style in (("few", "o-"), ("all", "s--")):
            mine = [row for row in rows if (row.kind, row.pairs) == (kind, pairs)]
            counts = [row.clients for row in mine]
            label = f"{kind}, {pairs} distances"
            axes[0].loglog(counts, [row.clustering for row in mine], style, label=label)
            axes[1].loglog(counts, [row.peak_gib for row in mine], style, label=label)
    axes[0].set_title("Clustering stages, seconds", fontsize=10)
    axes[1].set_title("Peak memory of the process, GiB", fontsize=10)
    for axis in axes:
        axis.set_xlabel("clients")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=8, frameon=False)
    drawn.tight_layout()
    drawn.savefig(path, dpi=130)


def main() -> None:
    """All sizes, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--most", type=int, default=SIZES[-1], help="largest number of clients")
    parser.add_argument("--full", type=int, default=1_000, help="the same for all pairs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path, help="where to draw the figure")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        kind, count, pairs = arguments.one
        print(json.dumps(asdict(one(kind, int(count), pairs == "all", arguments.seed))))
        return
    rows = []
    for kind in arguments.kinds:
        for pairs, most in (("few", arguments.most), ("all", arguments.full)):
            for count in (size for size in SIZES if size <= most):
                wanted = [kind, str(count), pairs]
                command = [sys.executable, __file__, "--seed", str(arguments.seed), "--one"]
                done = subprocess.run(command + wanted, check=True, stdout=subprocess.PIPE)
                rows.append(Row(**json.loads(done.stdout)))
                print(rows[-1], file=sys.stderr, flush=True)
    print(table(rows))
    for kind in arguments.kinds:
        few = [row for row in rows if (row.kind, row.pairs) == (kind, "few")]
        if len(few) > 2:
            print(f"\n{kind}: clustering stages grow as m^{exponent(few):.2f}, from 1,000 on.")
    if arguments.figure:
        figure(rows, arguments.figure)


if __name__ == "__main__":
    main()
