"""All benchmarks on a CPU, side by side, and a page of results.

    python benchmarks/run.py                       # make bench: writes benchmarks/RESULTS.md
    python benchmarks/run.py --quick               # the same in a tiny setting, to see that it runs
    python benchmarks/run.py --only trimmed_mean   # one of them

Flower and pfl-research take part where their environments are (``benchmarks/.venv``, which
``make bench`` makes).
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import HERE, Server, Times, figure, race, table
from setting import FULL, QUICK, Setting, training_flops
from whole_sr_fca import DIGITS

import srfca

CORES = len(os.sched_getaffinity(0))
PATHS = {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "src")])}
"""Where the other environments find the benchmarks and srfca."""
WARMED = ", after one to warm up."
VERSIONS = """
import sys
from importlib.metadata import version
print(", ".join(f"{name} {version(name)}" for name in sys.argv[1:]))
"""


@dataclass(frozen=True)
class Environments:
    """The interpreters of the benchmarks' environments, where they are."""

    folder: Path

    def python(self, name: str) -> str | None:
        """Of ``flower`` or ``pfl``, or None."""
        path = self.folder / name / "bin" / "python"
        return str(path) if path.exists() else None

    def versions(self) -> str:
        """Of everything that takes part."""
        packages = {sys.executable: ["torch", "numpy", "scipy", "numba"]}
        packages |= {p: ["flwr", "ray"] for p in [self.python("flower")] if p}
        packages |= {p: ["pfl"] for p in [self.python("pfl")] if p}
        found = [f"Python {platform.python_version()}", f"srfca {srfca.__version__}"]
        for python, names in packages.items():
            command = [python, "-c", VERSIONS, *names]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(done.stdout.strip())
        return ", ".join(found)


Servers = Callable[[Environments, list[str]], list[Server]]
"""The processes of a benchmark, given its arguments."""


def _here(script: str) -> Servers:
    return lambda environments, arguments: [Server([sys.executable, script, *arguments])]


def _round(environments: Environments, arguments: list[str]) -> list[Server]:
    servers = _here("federated_round.py")(environments, arguments)
    if pfl := environments.python("pfl"):
        several = ["-m", "torch.distributed.run", "--nproc-per-node", str(CORES)]
        servers.append(Server([pfl, "round_pfl.py", *arguments], PATHS))
        servers.append(Server([pfl, *several, "round_pfl.py", *arguments], PATHS))
    if flower := environments.python("flower"):
        servers.append(Server([flower, "round_flower.py", *arguments], PATHS))
    return servers


def _trimmed_mean(environments: Environments, arguments: list[str]) -> list[Server]:
    """All in one process, in Flower's environment if it is there: the rows take 4 GB."""
    python = environments.python("flower") or sys.executable
    return [Server([python, "trimmed_mean.py", *arguments], PATHS)]


@dataclass(frozen=True)
class Benchmark:
    """What is raced, and what is said about it."""

    title: str
    servers: Servers
    repeats: int
    check: str
    """What contestants tell of their answers, which must agree."""
    notes: Callable[[Setting, Sequence[Times]], str] = lambda sizes, times: ""
    warm_up: bool = True


def _limit(sizes: Setting, times: Sequence[Times]) -> str:
    of = {t.name: t.median for t in times}
    limit = of["matrix-multiply limit"]
    plain = next(t.median for t in times if t.name.startswith("plain loop"))
    rate = training_flops(sizes, sizes.local_steps) / limit / 1e9
    return (
        f"The limit is the products that this training needs, done as products of large matrices: "
        f"{figure(rate)} GFLOP/s. srfca reaches {limit / of['srfca']:.0%} of it, "
        f"the plain loop {limit / plain:.0%}."
    )


def _data(sizes: Setting, times: Sequence[Times]) -> str:
    digits = any(DIGITS in t.name for t in times) and not sizes.quick
    found = (
        "**Not on MNIST**, which was not found (`SRFCA_DATA`): 40 clients with digits, 60 steps."
    )
    return found if digits else ""


BENCHMARKS = {
    "local_training": Benchmark(
        "Local training: 100 clients x 50 steps, MLP 784-200-10, batch 50, Adam",
        _here("local_training.py"), 9, "mean norm of the models", _limit,
    ),
    "federated_round": Benchmark(
        "One federated round: 100 clients x 5 steps, MLP 784-200-10, batch 50, SGD",
        _round, 25, "norm of the step",
    ),
    "pairwise_losses": Benchmark(
        "All pairwise losses: 100 models on 100 clients of 600 samples, MLP 784-200-10",
        _here("pairwise_losses.py"), 3, "clusters",
    ),
    "trimmed_mean": Benchmark(
        "Trimmed mean: 100 rows of 10 million, beta = 0.1", _trimmed_mean, 3, "norm",
    ),
    "whole_sr_fca": Benchmark(
        "Whole SR-FCA, rotated MNIST: 100 clients x 250 steps, MLP 784-200-10, Adam, R = 2",
        _here("whole_sr_fca.py"), 3, "clusters", _data, warm_up=False,
    ),
}  # fmt: skip


def machine() -> str:
    """Cores, memory and processor."""
    model = platform.processor() or "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{CORES} cores, {memory:.0f} GiB, {model}"


def main() -> None:
    """Race, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(BENCHMARKS), default=list(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one run each")
    parser.add_argument("--repeats", type=int, help="runs of every contestant")
    parser.add_argument("--envs", type=Path, default=HERE / ".venv", help="the environments")
    parser.add_argument("--out", type=Path, help="where to write the page; else it is printed")
    arguments = parser.parse_args()
    environments = Environments(arguments.envs.absolute())
    sizes = QUICK if arguments.quick else FULL
    passed = ["--quick"] if arguments.quick else []
    command = " ".join(["python benchmarks/run.py", *sys.argv[1:]])
    parts = [
        f"# Results\n\n`{command}`\n\n{machine()}; load {os.getloadavg()[0]:.1f} at the start\n\n"
        f"{environments.versions()}"
    ]
    if arguments.quick:
        parts.append("A tiny setting, to see that all of it runs: its figures mean nothing.")
    for name in arguments.only:
        benchmark = BENCHMARKS[name]
        print(benchmark.title, file=sys.stderr, flush=True)
        repeats = arguments.repeats or (1 if arguments.quick else benchmark.repeats)
        times = race(benchmark.servers(environments, passed), repeats, benchmark.warm_up)
        runs = f"Medians over {repeats} interleaved runs{WARMED if benchmark.warm_up else '.'}"
        texts = [f"## {benchmark.title}", table(times, "srfca", benchmark.check), runs]
        parts.append("\n\n".join([*texts, benchmark.notes(sizes, times)]).strip())
    page = "\n\n".join(parts) + "\n"
    if arguments.out:
        arguments.out.write_text(page)
    else:
        print(page)


if __name__ == "__main__":
    main()
