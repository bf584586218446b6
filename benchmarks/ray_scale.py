"""Rounds on a Ray cluster beside one simulation, and a million clients that workers make.

    python benchmarks/ray_scale.py                     # rounds of two workers: time, CPU, bytes
    python benchmarks/ray_scale.py --nodes 1 2 4 8     # rounds on simulated nodes, and a projection
    python benchmarks/ray_scale.py --clients 1000000   # SR-FCA from end to end, in one run

Each prints Markdown tables for docs/ray.md. The cluster is one of this machine, unless ``--ray``
gives an address. Rounds of ``Simulation`` and of the workers are timed in turn, so that other load
meets both.

Two slowdowns are shown. By elapsed time it is what a user waits, on this machine. By CPU time it is
the longest path, the CPU time of the driver and of the busiest worker, over that of a
``Simulation`` that W cores share perfectly: what W workers lose on W idle cores.

With ``--nodes``, W nodes of one CPU run on this machine (``ray.cluster_utils``). Their rounds do
not run at the same time where there are fewer cores, so that only CPU time and bytes are read off
them. T(W) = fixed + W message + work / W, whose terms are not negative, is fitted to all numbers of
nodes but the last, and checked on that one.
"""

from __future__ import annotations

import argparse
import os
import resource
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import ray
import torch
from scale import KINDS, MAX_PARTICIPANTS, regressions
from scipy.optimize import nnls

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
WARM_UP = 2
"""Rounds that are not timed."""
PROJECTED = (8, 16, 32, 64)
LINK = 10e9 / 8
"""Bytes per second of the driver's network, of the projection: 10 Gbit/s."""
SHARD_SIZE = 25_000
"""Clients of a shard, at most, from end to end: a worker needs room for the answers of one."""
STORE_BYTES = 200 * 2**20
"""Object store of a simulated node."""


@dataclass(frozen=True)
class Timing:
    """Rounds of one kind: of one simulation, and of workers. Times are of a round.

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
        node_bytes: To and from each node.
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
    node_bytes: list[tuple[int, int]]
    rows_bytes: int

    @property
    def by_elapsed_time(self) -> float:
        """The time of a round, over that of a simulation."""
        return self.workers / self.simulation

    @property
    def by_cpu_time(self) -> float:
        """The longest path of CPU time, over a perfect share of the simulation's."""
        return len(self.worker_cpu) * self.longest_path / self.simulation_cpu

    @property
    def longest_path(self) -> float:
        """Seconds of CPU of the driver and of the busiest worker."""
        return self.driver_cpu + max(self.worker_cpu)


def time_rounds(
    num_clients: int, rules: Sequence[str], actors: int, repetitions: int, seed: int
) -> list[Timing]:
    """Time rounds of one simulation and of workers, in turn."""
    kind = KINDS["images"]
    data = kind.draw(num_clients, seed)
    simulation = Simulation(data, kind.model)
    with RayFederation(data, kind.model, actors=actors, num_cpus=1) as cluster:
        return [_time_rule(simulation, cluster, rule, repetitions) for rule in rules]


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
    for number in range(WARM_UP + repetitions):
        request = Round(
            clients, models, labels, LOCAL, Key(0, name, number), rule, max_change=limit
        )
        if number == WARM_UP:
            before = cluster.usage()
        last = []
        federations: list[Federation] = [simulation, cluster]
        for position, federation in enumerate(federations):
            start, cpu_start = perf_counter(), process_time()
            last.append(ask(federation, request))
            if number >= WARM_UP:
                seconds[position].append(perf_counter() - start)
                cpu[position] += process_time() - cpu_start
    difference = float((last[1].values - last[0].values).abs().max())
    assert difference < 1e-4, f"the models differ by {difference}"
    pairs = list(zip(cluster.usage(), before, strict=True))
    used = [(now.cpu_seconds - then.cpu_seconds) / repetitions for now, then in pairs]
    nodes: dict[str, tuple[int, int]] = {}
    for now, then in pairs:
        taken, given = nodes.get(now.node, (0, 0))
        within = now.bytes_within - then.bytes_within
        taken += (now.bytes_in - then.bytes_in - within) // repetitions
        given += (now.bytes_out - then.bytes_out - within) // repetitions
        nodes[now.node] = taken, given
    alone, driver = (total / repetitions for total in cpu)
    traffic = last[1].traffic
    return Timing(
        num_clients, name, median(seconds[0]), median(seconds[1]), alone, driver, used,
        traffic.bytes_down, traffic.bytes_up, list(nodes.values()),
        4 * num_clients * models.shape[1],
    )  # fmt: skip


def table(timings: Sequence[Timing]) -> str:
    """Return all rounds as a Markdown table."""
    lines = [
        "| clients | aggregation | workers | one simulation, s of CPU | driver, s of CPU | "
        "each worker, s of CPU | slowdown by CPU time | by elapsed time | driver sends, B | "
        "driver gets, B | busiest node gets, B | sends, B | rows of all clients, B |",
        "|---" * 13 + "|",
    ]
    for t in timings:
        workers = ", ".join(f"{seconds:.3f}" for seconds in t.worker_cpu)
        taken, given = max(t.node_bytes, key=sum)
        lines.append(
            f"| {t.num_clients:,} | {t.rule} | {len(t.worker_cpu)} | {t.simulation_cpu:.3f} | "
            f"{t.driver_cpu:.3f} | {workers} | {t.by_cpu_time:.2f} x | {t.by_elapsed_time:.2f} x | "
            f"{t.bytes_down:,} | {t.bytes_up:,} | {taken:,} | {given:,} | {t.rows_bytes:,} |"
        )
    return "\n".join(lines)


@dataclass(frozen=True)
class Curve:
    """Seconds of a round on W machines: T(W) = fixed + W message + work / W.

    Args:
        fixed: Seconds of CPU that do not depend on W.
        message: Seconds of CPU of the longest path for each worker.
        work: Seconds of CPU that the workers share.
        node_bytes: Through the driver, for each worker.
    """

    fixed: float
    message: float
    work: float
    node_bytes: float

    @classmethod
    def of(cls, timings: Sequence[Timing]) -> Curve:
        """Fit the curve: least squares of relative errors, no term negative."""
        workers = np.array([len(timing.worker_cpu) for timing in timings], dtype=float)
        seconds = np.array([timing.longest_path for timing in timings])
        terms = np.stack([np.ones_like(workers), workers, 1 / workers], axis=1)
        fixed, message, work = nnls(terms / seconds[:, None], np.ones_like(workers))[0]
        last = timings[-1]
        moved = (last.bytes_down + last.bytes_up) / workers[-1]
        return cls(float(fixed), float(message), float(work), float(moved))

    def at(self, workers: int) -> float:
        """Return the seconds of CPU of the longest path."""
        return self.fixed + workers * self.message + self.work / workers

    def seconds(self, workers: int) -> float:
        """Return the seconds of a round, with what goes through the driver's network."""
        return self.at(workers) + workers * self.node_bytes / LINK


def projection(timings: Sequence[Timing]) -> str:
    """Return the curve of rounds on more and more nodes, as a Markdown table."""
    fitted = timings[: max(2, len(timings) - 1)]
    curve = Curve.of(fitted)
    numbers = ", ".join(str(len(timing.worker_cpu)) for timing in fitted)
    lines = [
        f"T(W) = {curve.fixed:.4f} + {curve.message:.4f} W + {curve.work:.3f} / W s of CPU, "
        f"fitted to {numbers} nodes; "
        f"{curve.node_bytes:,.0f} B for each worker through the driver.",
        "",
        "| nodes | measured, s of CPU | T(W), s of CPU | round, s | speed-up over one worker |",
        "|---" * 5 + "|",
    ]
    measured = {len(timing.worker_cpu): timing.longest_path for timing in timings}
    for workers in [*measured, *(w for w in PROJECTED if w > max(measured))]:
        known = f"{measured[workers]:.4f}" if workers in measured else ""
        lines.append(
            f"| {workers} | {known} | {curve.at(workers):.4f} | {curve.seconds(workers):.4f} | "
            f"{curve.seconds(1) / curve.seconds(workers):.1f} x |"
        )
    assumed = (
        "Assumed: equal machines with one worker each, and clients cut evenly; CPU time grows with "
        "the workers as in the fit; that of the driver does not overlap with that of the workers; "
        f"all bytes pass one link of {8 * LINK / 1e9:.0f} Gbit/s, without delays."
    )
    return "\n".join([*lines, "", assumed])


@contextmanager
def simulated_nodes(count: int) -> Iterator[None]:
    """Connect to a cluster of nodes on this machine, with one CPU each, and a head without."""
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES,
        },
    )  # fmt: skip
    try:
        for _ in range(count):
            cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
        cluster.wait_for_nodes()
        connect(cluster.address)
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


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


@dataclass
class MemoryWatch:
    """Samples the memory of the driver and of all processes of Ray on this machine.

    A page that several processes share, as in the object store, counts once (PSS).

    Args:
        interval: Seconds between samples.
    """

    interval: float = 1.0
    peak: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    """Bytes of each part when all together had the most."""
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> MemoryWatch:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self.interval):
            parts = _memory_of_parts()
            if sum(parts.values()) > self.peak:
                self.peak, self.parts = sum(parts.values()), parts


def _memory_of_parts() -> dict[str, int]:
    """Return the bytes of the driver, the workers and the other processes of Ray."""
    parts = {"driver": 0, "workers": 0, "Ray itself": 0}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            if process.name == str(os.getpid()):
                part = "driver"
            elif command.startswith("ray::Worker"):
                part = "workers"
            elif command.startswith("ray::") or "/ray/" in command or "session_" in command:
                part = "Ray itself"
            else:
                continue
            lines = (process / "smaps_rollup").read_text().splitlines()
            parts[part] += next(1024 * int(line.split()[1]) for line in lines if "Pss:" in line)
        except (OSError, StopIteration):
            continue
    return parts


@dataclass(frozen=True)
class EndToEnd:
    """One run of SR-FCA.

    Args:
        num_clients: How many clients.
        workers: How many workers.
        shards: How many shards.
        making: Seconds until the workers have made their clients.
        seconds: Seconds of SR-FCA.
        stages: Seconds by stage.
        driver_peak: Peak memory of the driver, bytes.
        worker_peaks: Peak memory of each worker.
        peak: Peak memory of all processes, Ray's own and its object store included.
        parts: Memory of each part at that moment.
        bytes_down: From the driver to the workers.
        bytes_up: From the workers to the driver.
        num_clusters: Clusters in the end.
        misclustering: The part of the clients that are in a wrong cluster.
    """

    num_clients: int
    workers: int
    shards: int
    making: float
    seconds: float
    stages: dict[str, float]
    driver_peak: int
    worker_peaks: list[int]
    peak: int
    parts: dict[str, int]
    bytes_down: int
    bytes_up: int
    num_clusters: int
    misclustering: float

    def table(self) -> str:
        """Return the run as a Markdown table."""
        stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.stages.items())
        peaks = ", ".join(_gib(peak) for peak in self.worker_peaks)
        parts = ", ".join(f"{name} {_gib(size)}" for name, size in self.parts.items())
        rows = {
            "clients": f"{self.num_clients:,}",
            "workers": str(self.workers),
            "shards": str(self.shards),
            "making the clients, s": f"{self.making:.1f}",
            "SR-FCA, s": f"{self.seconds:.1f}",
            "of these, s": stages,
            "peak of all processes, GiB": f"{_gib(self.peak)} ({parts})",
            "peak of the driver, GiB": _gib(self.driver_peak),
            "peak of each worker, GiB": peaks,
            "driver sends, MB": f"{self.bytes_down / 1e6:,.0f}",
            "driver gets, MB": f"{self.bytes_up / 1e6:,.0f}",
            "clusters": str(self.num_clusters),
            "misclustered": f"{self.misclustering:.2%}",
        }
        return "\n".join(["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())])


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f}"


def run_end_to_end(num_clients: int, actors: int, seed: int) -> EndToEnd:
    """Run SR-FCA on clients that the workers make."""
    start = perf_counter()
    count = max(actors, -(-num_clients // SHARD_SIZE))
    sizes = [len(part) for part in np.array_split(np.arange(num_clients), count)]
    shards = [MakeShard(number, size, seed) for number, size in enumerate(sizes)]
    kind = KINDS["linear"]
    with (
        MemoryWatch() as memory,
        RayFederation(shards, kind.model, actors=actors, num_cpus=1, seed=seed) as federation,
    ):
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
            num_clients, actors, count, making, seconds,
            {stage.name: stage.seconds for stage in result.history},
            1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            [used.peak_bytes for used in federation.usage()], memory.peak, memory.parts,
            federation.traffic.bytes_down, federation.traffic.bytes_up,
            result.partition.num_clusters, result.partition.misclustering(federation.truth),
        )  # fmt: skip


def time_nodes(counts: Sequence[int], num_clients: int, repetitions: int, seed: int) -> None:
    """Print rounds on simulated nodes, and what follows for more of them."""
    timings: dict[str, list[Timing]] = {rule: [] for rule in RULES}
    for count in counts:
        with simulated_nodes(count):
            for timing in time_rounds(num_clients, list(RULES), count, repetitions, seed):
                timings[timing.rule].append(timing)
    print(table([timing for of_rule in timings.values() for timing in of_rule]))
    for rule, of_rule in timings.items():
        if len(of_rule) > 1:
            print(f"\n**{num_clients:,} clients, {rule}**\n\n{projection(of_rule)}")


def main() -> None:
    """Measure rounds, or one run from end to end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--ray", help="address of a cluster; default: a new one of this machine")
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--nodes", nargs="*", type=int, help="time these numbers of nodes instead")
    parser.add_argument("--clients", type=int, help="run SR-FCA on this many clients instead")
    parser.add_argument("--actors", type=int, default=2, help="workers")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.nodes:
        size = max(arguments.sizes)
        time_nodes(arguments.nodes, size, arguments.repetitions, arguments.seed)
        return
    connect(arguments.ray or "local")
    if arguments.clients is not None:
        print(run_end_to_end(arguments.clients, arguments.actors, arguments.seed).table())
        return
    timings = [
        timing
        for size in arguments.sizes
        for timing in time_rounds(
            size, list(RULES), arguments.actors, arguments.repetitions, arguments.seed
        )
    ]
    print(table(timings))


if __name__ == "__main__":
    main()
