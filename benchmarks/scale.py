"""SR-FCA on 100 to 100,000 clients: time and peak memory of each stage, and how they grow.

    python benchmarks/scale.py                    # regressions and small images, few distances
    python benchmarks/scale.py --figure scale.png # and a figure (needs matplotlib)

All pairs of distances are computed too, for up to ``--max-all-pairs`` clients. Every run has a
process of its own. The clustering stages are ONE_SHOT without its local training, RECLUSTER and
MERGE; at most 1,000 clients take part in a round of training.
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

from srfca import SRFCA, ClientData, LocalTraining, Partition, Simulation, models, progress
from srfca.data import Samples
from srfca.methods import Monitor

SIZES = (100, 1_000, 10_000, 100_000)
GROUPS, DIMENSION, NUM_SAMPLES, NUM_TEST_SAMPLES = 4, 20, 30, 10
MAX_PARTICIPANTS = 1_000
CLUSTERING = ("clustering", "RECLUSTER 1", "MERGE 1")

Draw = Callable[[int], tuple[Tensor, Tensor]]
"""From a number of samples n to those of every client: x ``[m, n, ...]`` and y ``[m, n]``."""


def regressions(num_clients: int, seed: int, shard: int = 0) -> ClientData:
    """Draw linear regressions, d = 20, in four groups; shards have the same optima."""
    g = torch.Generator().manual_seed(seed)
    optima = torch.randn(GROUPS, DIMENSION, generator=g)
    if shard:
        g.manual_seed(seed + 1_000_003 * shard)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(num_clients, n, DIMENSION, generator=g)
        w = optima[torch.arange(num_clients) % GROUPS]
        noise = 0.3 * torch.randn(num_clients, n, generator=g)
        return x, torch.einsum("cnd,cd->cn", x, w) + noise

    return client_data(num_clients, draw)


def images(num_clients: int, seed: int) -> ClientData:
    """Draw 8x8 images of ten classes: patterns with noise, rotated by 90 degrees per group."""
    g = torch.Generator().manual_seed(seed)
    patterns = torch.randn(10, 8, 8, generator=g)
    rotated = torch.stack([torch.rot90(patterns, turn, (1, 2)) for turn in range(GROUPS)])

    def draw(n: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(10, (num_clients, n), generator=g)
        x = rotated[(torch.arange(num_clients) % GROUPS).unsqueeze(1), y].flatten(2)
        return x + torch.randn(x.shape, generator=g), y

    return client_data(num_clients, draw)


def client_data(num_clients: int, draw: Draw) -> ClientData:
    """Return clients that are assigned to the groups in turn."""

    def samples(n: int) -> Samples:
        x, y = draw(n)
        return Samples(x.flatten(0, 1), y.flatten(), torch.full((num_clients,), n))

    client_ids = tuple(str(client) for client in range(num_clients))
    truth = Partition(np.arange(num_clients) % GROUPS)
    return ClientData(client_ids, samples(NUM_SAMPLES), samples(NUM_TEST_SAMPLES), truth)


@dataclass(frozen=True)
class Kind:
    """A kind of clients: how their data is drawn, their model, and how they train."""

    draw: Callable[[int, int], ClientData]
    model: Any
    local: LocalTraining


KINDS = {
    "linear": Kind(
        regressions, models.linear(DIMENSION), LocalTraining(steps=50, batch_size=10, lr=0.05)
    ),
    "images": Kind(
        images, models.mlp(64, 16, 10), LocalTraining(steps=50, batch_size=10, lr=0.2)
    ),
}  # fmt: skip


class LocalTrainingTimer(Monitor):
    """A monitor that times the local training of ONE_SHOT, up to its last step."""

    def __init__(self) -> None:
        self.start = self.end = 0.0

    @property
    def seconds(self) -> float:
        """How long the local training took."""
        return self.end - self.start

    @contextmanager
    def stage(self, name: str, steps: int) -> Iterator[progress.Callback]:
        """Enter a stage."""
        if name != "ONE_SHOT":
            yield progress.ignore
            return
        self.start = perf_counter()

        def report(steps: int) -> None:
            self.end = perf_counter()

        yield report


@dataclass(frozen=True)
class Measurement:
    """The numbers of one run."""

    kind: str
    num_clients: int
    pairs: str
    """Which distances were computed: ``few`` or ``all``."""
    seconds: float
    stages: dict[str, float]
    """Seconds by stage."""
    peak_gib: float
    """Peak memory of the process, including data."""
    data_gib: float
    """The same before the method started."""
    evaluations: int
    num_clusters: int
    misclustering: float

    @property
    def clustering(self) -> float:
        """Seconds of the clustering stages."""
        return sum(self.stages[name] for name in CLUSTERING)


def measure(kind: str, num_clients: int, all_pairs: bool, seed: int) -> Measurement:
    """Measure one run, in this process."""
    data = KINDS[kind].draw(num_clients, seed)
    federation = Simulation(data, KINDS[kind].model, seed=seed)
    data_gib = _peak_gib()
    method = SRFCA(
        local=KINDS[kind].local, refine_steps=1, all_pairs=num_clients if all_pairs else 0,
        participation=min(1.0, MAX_PARTICIPANTS / num_clients),
    )  # fmt: skip
    timer = LocalTrainingTimer()
    start = perf_counter()
    result = method.fit(federation, seed=seed, callbacks=timer)
    seconds = perf_counter() - start
    stages = {stage.name: stage.seconds for stage in result.history}
    clustering = stages.pop("ONE_SHOT") - timer.seconds
    stages = {"local training": timer.seconds, "clustering": clustering} | stages
    assert data.truth is not None
    return Measurement(
        kind, num_clients, "all" if all_pairs else "few", seconds, stages, _peak_gib(), data_gib,
        result.budget.evaluations, result.partition.num_clusters,
        result.partition.misclustering(data.truth),
    )  # fmt: skip


def _peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def exponent(measurements: Sequence[Measurement], min_clients: int = 1_000) -> float:
    """Return the slope of log seconds of the clustering stages over log m."""
    large = [m for m in measurements if m.num_clients >= min_clients]
    log_clients = [np.log(m.num_clients) for m in large]
    log_seconds = [np.log(m.clustering) for m in large]
    return float(np.polyfit(log_clients, log_seconds, 1)[0])


def table(measurements: Sequence[Measurement]) -> str:
    """Return all runs as a Markdown table."""
    lines = [
        "| kind | clients | pairs | local training | clustering | training | RECLUSTER | MERGE | "
        "total, s | peak GiB | evaluations | clusters | misclustered |",
        "|---" * 13 + "|",
    ]
    for m in measurements:
        names = ("local training", "clustering", "TRIMMED_MEAN_GD 1", "RECLUSTER 1", "MERGE 1")
        seconds = " | ".join(f"{m.stages[name]:.1f}" for name in names)
        lines.append(
            f"| {m.kind} | {m.num_clients:,} | {m.pairs} | {seconds} | {m.seconds:.1f} | "
            f"{m.peak_gib:.1f} | {m.evaluations:,} | {m.num_clusters} | {m.misclustering:.2%} |"
        )
    return "\n".join(lines)


def draw_figure(measurements: Sequence[Measurement], path: Path) -> None:
    """Draw time of the clustering stages and peak memory over the number of clients."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
    for kind in KINDS:
        for pairs, style in (("few", "o-"), ("all", "s--")):
            line = [m for m in measurements if (m.kind, m.pairs) == (kind, pairs)]
            counts = [m.num_clients for m in line]
            label = f"{kind}, {pairs} distances"
            axes[0].loglog(counts, [m.clustering for m in line], style, label=label)
            axes[1].loglog(counts, [m.peak_gib for m in line], style, label=label)
    axes[0].set_title("Clustering stages, seconds", fontsize=10)
    axes[1].set_title("Peak memory of the process, GiB", fontsize=10)
    for axis in axes:
        axis.set_xlabel("clients")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main() -> None:
    """Measure all sizes, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument(
        "--max-clients", type=int, default=SIZES[-1], help="largest number of clients"
    )
    parser.add_argument(
        "--max-all-pairs", type=int, default=1_000, help="the same with all pairs of distances"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path, help="draw a figure into this file")
    parser.add_argument("--single", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.single:
        kind, count, pairs = arguments.single
        print(json.dumps(asdict(measure(kind, int(count), pairs == "all", arguments.seed))))
        return
    measurements = []
    for kind in arguments.kinds:
        for pairs, limit in (("few", arguments.max_clients), ("all", arguments.max_all_pairs)):
            for count in (size for size in SIZES if size <= limit):
                command = [sys.executable, __file__, "--seed", str(arguments.seed)]
                command += ["--single", kind, str(count), pairs]
                output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
                measurements.append(Measurement(**json.loads(output)))
                print(measurements[-1], file=sys.stderr, flush=True)
    print(table(measurements))
    for kind in arguments.kinds:
        few = [m for m in measurements if (m.kind, m.pairs) == (kind, "few")]
        if len(few) > 2:
            print(f"\n{kind}: clustering stages grow as m^{exponent(few):.2f}, from 1,000 on.")
    if arguments.figure:
        draw_figure(measurements, arguments.figure)


if __name__ == "__main__":
    main()
