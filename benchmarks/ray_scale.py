"""Rounds on a Ray cluster beside one simulation, and a million clients that workers make.

    python benchmarks/ray_scale.py                     # rounds: time, bytes through the driver
    python benchmarks/ray_scale.py --clients 1000000   # SR-FCA from end to end, in one run

The cluster is one of this machine, unless ``--ray`` gives an address. Rounds of ``Simulation`` and
of clusters with one and two workers are timed in turn, so that other load meets all of them.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter

import numpy as np
import torch
from scale import KINDS, MAX_PARTICIPANTS, regressions
from torch import Tensor

from srfca import SRFCA, ClientData, Simulation
from srfca.aggregation.outliers import NORM_LIMIT
from srfca.aggregation.rules import Mean, TrimmedMean
from srfca.federation import LocalTraining, Replies
from srfca.federation.requests import Round
from srfca.federation.rounds import ask
from srfca.random import Key
from srfca.ray import RayFederation, connect

SIZES = (100, 1_000, 10_000)
CLUSTERS = 4
LOCAL = LocalTraining(steps=1_000, local_steps=10, batch_size=10, lr=0.1)
RULES = {
    "mean": (Mean(), None),
    "trimmed mean": (TrimmedMean(0.05, at_least=1), NORM_LIMIT),
}
"""Aggregations, with the bound on changes that SR-FCA has."""


@dataclass(frozen=True)
class Timing:
    """Rounds of one kind.

    Args:
        num_clients: All of them take part.
        rule: How rows are aggregated.
        simulation: Seconds of a round of one simulation, the median.
        workers: The same with one and two workers.
        bytes_down: From the driver to two workers in a round.
        bytes_up: From two workers to the driver.
        rows_bytes: The rows of all clients.
    """

    num_clients: int
    rule: str
    simulation: float
    workers: tuple[float, float]
    bytes_down: int
    bytes_up: int
    rows_bytes: int


def time_rounds(num_clients: int, repetitions: int, seed: int) -> list[Timing]:
    """Time rounds of one simulation, and of one and two workers, in turn."""
    kind = KINDS["images"]
    data = kind.draw(num_clients, seed)
    simulation = Simulation(data, kind.model)
    cores = torch.get_num_threads()
    with RayFederation(data, kind.model, actors=1, num_cpus=cores) as one:
        counts = _rounds(simulation, [one], repetitions)
    with RayFederation(data, kind.model, actors=2, num_cpus=max(1, cores // 2)) as two:
        pairs = _rounds(simulation, [two], repetitions)
    length = len(simulation.initial_model(0))
    timings = []
    for rule in RULES:
        (alone, [(first, _, _)]), (again, [(second, down, up)]) = counts[rule], pairs[rule]
        scale = alone / again  # other load may have changed in between
        workers, rows_bytes = (first, second * scale), 4 * num_clients * length
        timings.append(Timing(num_clients, rule, alone, workers, down, up, rows_bytes))
    return timings


def _rounds(
    simulation: Simulation, clusters: Sequence[RayFederation], repetitions: int
) -> dict[str, tuple[float, list[tuple[float, int, int]]]]:
    """Return the seconds of a round, and those and the bytes of each cluster, by rule."""
    num_clients = len(simulation.client_ids)
    clients, labels = np.arange(num_clients), np.arange(num_clients) % CLUSTERS
    models = torch.stack([simulation.initial_model(seed) for seed in range(CLUSTERS)])
    measured = {}
    for name, (rule, limit) in RULES.items():
        seconds: list[list[float]] = [[] for _ in range(1 + len(clusters))]
        last: list[Replies[Tensor]] = []
        for number in range(2 + repetitions):
            request = Round(
                clients, models, labels, LOCAL, Key(0, name, number), rule, max_change=limit
            )
            last = []
            for position, federation in enumerate((simulation, *clusters)):
                start = perf_counter()
                last.append(ask(federation, request))
                if number >= 2:
                    seconds[position].append(perf_counter() - start)
        for replies in last[1:]:
            difference = float((replies.values - last[0].values).abs().max())
            assert difference < 1e-4, f"the models differ by {difference}"
        traffic = [replies.traffic for replies in last[1:]]
        cluster = [
            (median(times), moved.bytes_down, moved.bytes_up)
            for times, moved in zip(seconds[1:], traffic, strict=True)
        ]
        measured[name] = median(seconds[0]), cluster
    return measured


@dataclass(frozen=True)
class MakeShard:
    """Draws a shard of the regressions on its worker."""

    number: int
    num_clients: int
    seed: int

    def __call__(self) -> ClientData:
        """Return the shard: clients of all groups in turn, with the optima of the seed."""
        data = regressions(self.num_clients, self.seed, self.number)
        ids = tuple(f"{self.number}/{client}" for client in range(self.num_clients))
        return ClientData(ids, data.train, data.test, data.truth)


@dataclass(frozen=True)
class EndToEnd:
    """One run of SR-FCA.

    Args:
        num_clients: How many clients.
        workers: How many workers.
        making: Seconds until the workers have made their clients.
        seconds: Of SR-FCA.
        stages: Seconds by stage.
        driver_gib: Peak memory of the driver.
        worker_gib: Peak memory of each worker.
        bytes_down: From the driver to the workers.
        bytes_up: From the workers to the driver.
        num_clusters: Clusters in the end.
        misclustering: The part of the clients that are in a wrong cluster.
    """

    num_clients: int
    workers: int
    making: float
    seconds: float
    stages: dict[str, float]
    driver_gib: float
    worker_gib: list[float]
    bytes_down: int
    bytes_up: int
    num_clusters: int
    misclustering: float


def run_end_to_end(num_clients: int, actors: int, seed: int) -> EndToEnd:
    """Run SR-FCA on clients that the workers make."""
    start = perf_counter()
    sizes = [len(part) for part in np.array_split(np.arange(num_clients), actors)]
    shards = [MakeShard(number, size, seed) for number, size in enumerate(sizes)]
    kind = KINDS["linear"]
    with RayFederation(shards, kind.model, actors=actors, num_cpus=1, seed=seed) as federation:
        making = perf_counter() - start
        method = SRFCA(
            local=kind.local, refine_steps=1, all_pairs=0,
            participation=min(1.0, MAX_PARTICIPANTS / num_clients),
        )  # fmt: skip
        start = perf_counter()
        result = method.fit(federation, seed=seed)
        seconds = perf_counter() - start
        assert federation.truth is not None
        return EndToEnd(
            num_clients, actors, making, seconds,
            {stage.name: stage.seconds for stage in result.history},
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            [peak / 2**30 for peak in federation.peak_memory()],
            federation.traffic.bytes_down, federation.traffic.bytes_up,
            result.partition.num_clusters, result.partition.misclustering(federation.truth),
        )  # fmt: skip


def table(timings: Sequence[Timing]) -> str:
    """Return all rounds as a Markdown table."""
    lines = [
        "| clients | aggregation | one simulation, ms | 1 worker | 2 workers | driver sends, B | "
        "driver gets, B | rows of all clients, B |",
        "|---" * 8 + "|",
    ]
    for t in timings:
        first, second = (seconds / t.simulation for seconds in t.workers)
        lines.append(
            f"| {t.num_clients:,} | {t.rule} | {1e3 * t.simulation:.0f} | {first:.2f} x | "
            f"{second:.2f} x | {t.bytes_down:,} | {t.bytes_up:,} | {t.rows_bytes:,} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure rounds, or one run from end to end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ray", help="address of a cluster; default: a new one of this machine")
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--clients", type=int, help="run SR-FCA on this many clients instead")
    parser.add_argument("--actors", type=int, default=2, help="workers of that run")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    connect(arguments.ray or "local")
    if arguments.clients is not None:
        run = run_end_to_end(arguments.clients, arguments.actors, arguments.seed)
        print(json.dumps(asdict(run), indent=1))
        return
    timings = [
        timing
        for size in arguments.sizes
        for timing in time_rounds(size, arguments.repetitions, arguments.seed)
    ]
    print(table(timings))


if __name__ == "__main__":
    main()
