"""Rounds on a Ray cluster beside one simulation, and a million clients that workers make.

    python benchmarks/ray_scale.py                     # rounds: time, bytes through the driver
    python benchmarks/ray_scale.py --clients 1000000   # SR-FCA from end to end, in one run

The cluster is one of this machine, unless ``--ray`` gives an address. Rounds of ``Simulation`` and
of two workers are timed in turn, so that other load meets both. The longest path is the CPU time of
the driver and of the busiest worker, over half of that of a ``Simulation``: what two workers lose
on two idle cores, if a ``Simulation`` uses these perfectly.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter, process_time

import numpy as np
import torch
from scale import KINDS, MAX_PARTICIPANTS, regressions

from srfca import SRFCA, ClientData, Simulation
from srfca.aggregation.outliers import NORM_LIMIT
from srfca.aggregation.rules import Aggregation, Mean, TrimmedMean
from srfca.federation import Federation, LocalTraining
from srfca.federation.requests import Round
from srfca.federation.rounds import ask
from srfca.random import Key
from srfca.ray import RayFederation, connect

SIZES = (100, 1_000, 10_000)
CLUSTERS = 4
LOCAL = LocalTraining(steps=5_000, local_steps=50, batch_size=10, lr=0.1)
RULES: dict[str, tuple[Aggregation, float | None]] = {
    "mean": (Mean(), None),
    "trimmed mean": (TrimmedMean(0.05, at_least=1), NORM_LIMIT),
}
"""Aggregations, with the bound on changes that SR-FCA has."""


@dataclass(frozen=True)
class Timing:
    """Rounds of one kind: of one simulation, and of two workers. Times are of a round.

    Args:
        num_clients: All of them take part.
        rule: How rows are aggregated.
        simulation: Seconds of the simulation, the median.
        workers: Seconds with workers, the median.
        simulation_cpu: Seconds of CPU of the simulation, the mean.
        driver_cpu: Seconds of CPU of the driver.
        worker_cpu: Seconds of CPU of each worker.
        bytes_down: From the driver to the workers.
        bytes_up: From the workers to the driver.
        rows_bytes: The rows of all clients.
    """

    num_clients: int
    rule: str
    simulation: float
    workers: float
    simulation_cpu: float
    driver_cpu: float
    worker_cpu: list[float]
    bytes_down: int
    bytes_up: int
    rows_bytes: int

    @property
    def slowdown(self) -> float:
        """The longest path of CPU time, over half of the simulation's."""
        return 2 * (self.driver_cpu + max(self.worker_cpu)) / self.simulation_cpu


def time_rounds(num_clients: int, repetitions: int, seed: int) -> list[Timing]:
    """Time rounds of one simulation and of two workers, in turn."""
    kind = KINDS["images"]
    data = kind.draw(num_clients, seed)
    simulation = Simulation(data, kind.model)
    with RayFederation(data, kind.model, actors=2, num_cpus=1) as cluster:
        return [_time_rule(simulation, cluster, rule, repetitions) for rule in RULES]


def _time_rule(
    simulation: Simulation, cluster: RayFederation, name: str, repetitions: int
) -> Timing:
    """Time rounds with one aggregation."""
    rule, limit = RULES[name]
    num_clients = len(simulation.client_ids)
    clients, labels = np.arange(num_clients), np.arange(num_clients) % CLUSTERS
    models = torch.stack([simulation.initial_model(seed) for seed in range(CLUSTERS)])
    seconds: tuple[list[float], list[float]] = [], []
    cpu = [0.0, 0.0]
    before = cluster.usage()
    for number in range(2 + repetitions):
        request = Round(
            clients, models, labels, LOCAL, Key(0, name, number), rule, max_change=limit
        )
        if number == 2:  # the first ones warm up
            before = cluster.usage()
        last = []
        federations: list[Federation] = [simulation, cluster]
        for position, federation in enumerate(federations):
            start, cpu_start = perf_counter(), process_time()
            last.append(ask(federation, request))
            if number >= 2:
                seconds[position].append(perf_counter() - start)
                cpu[position] += process_time() - cpu_start
    difference = float((last[1].values - last[0].values).abs().max())
    assert difference < 1e-4, f"the models differ by {difference}"
    used = [
        (now.cpu_seconds - then.cpu_seconds) / repetitions
        for now, then in zip(cluster.usage(), before, strict=True)
    ]
    alone, driver = (total / repetitions for total in cpu)
    traffic = last[1].traffic
    return Timing(
        num_clients, name, median(seconds[0]), median(seconds[1]), alone, driver, used,
        traffic.bytes_down, traffic.bytes_up, 4 * num_clients * models.shape[1],
    )  # fmt: skip


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
        seconds: Seconds of SR-FCA.
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
            [used.peak_bytes / 2**30 for used in federation.usage()],
            federation.traffic.bytes_down, federation.traffic.bytes_up,
            result.partition.num_clusters, result.partition.misclustering(federation.truth),
        )  # fmt: skip


def table(timings: Sequence[Timing]) -> str:
    """Return all rounds as a Markdown table."""
    lines = [
        "| clients | aggregation | one simulation: s of CPU | driver | workers | longest path | "
        "elapsed | driver sends, B | driver gets, B | rows of all clients, B |",
        "|---" * 10 + "|",
    ]
    for t in timings:
        workers = " + ".join(f"{seconds:.3f}" for seconds in t.worker_cpu)
        lines.append(
            f"| {t.num_clients:,} | {t.rule} | {t.simulation_cpu:.3f} | {t.driver_cpu:.3f} | "
            f"{workers} | {t.slowdown:.2f} x | {t.workers / t.simulation:.2f} x | "
            f"{t.bytes_down:,} | {t.bytes_up:,} | {t.rows_bytes:,} |"
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
