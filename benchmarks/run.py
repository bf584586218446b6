"""All benchmarks on a CPU, interleaved, and a page of results.

    python benchmarks/run.py                       # make bench: writes benchmarks/RESULTS.md
    python benchmarks/run.py --quick               # tiny sizes, to check that everything runs
    python benchmarks/run.py --only trimmed_mean   # one of them

Flower and pfl-research take part if their environments exist (``benchmarks/.venv``, which
``make bench`` creates).
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

from federated_round import LIMIT
from harness import FOLDER, Process, Times, format_number, race, table
from setting import FULL, QUICK, Setting, training_flops
from whole_sr_fca import DIGITS

import srfca

CORES = len(os.sched_getaffinity(0))
PATHS = {"PYTHONPATH": os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src")])}
"""Where the other environments find the benchmarks and srfca."""
VERSIONS = """
import sys
from importlib.metadata import version
print(", ".join(f"{name} {version(name)}" for name in sys.argv[1:]))
"""


@dataclass(frozen=True)
class Environments:
    """The environments of Flower and pfl-research, in one folder."""

    folder: Path

    def python(self, name: str) -> str | None:
        """Return the interpreter of ``flower`` or ``pfl``, None if there is no such environment."""
        path = self.folder / name / "bin" / "python"
        return str(path) if path.exists() else None

    def versions(self) -> str:
        """Return the versions of everything that takes part."""
        packages = {sys.executable: ["torch", "numpy", "scipy", "numba"]}
        packages |= {python: ["flwr", "ray"] for python in [self.python("flower")] if python}
        packages |= {python: ["pfl"] for python in [self.python("pfl")] if python}
        versions = [f"Python {platform.python_version()}", f"srfca {srfca.__version__}"]
        for python, names in packages.items():
            command = [python, "-c", VERSIONS, *names]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            versions.append(output.strip())
        return ", ".join(versions)


Processes = Callable[[Environments, list[str]], list[Process]]
"""From the environments and command-line arguments to the processes of a benchmark."""


def _script(name: str) -> Processes:
    """Run a script in this environment."""
    return lambda environments, arguments: [Process([sys.executable, name, *arguments])]


def _round_of(network: str) -> Processes:
    """Run the federated round with a network in all environments."""
    return lambda environments, arguments: _round(environments, [*arguments, "--network", network])


def _round(environments: Environments, arguments: list[str]) -> list[Process]:
    processes = _script("federated_round.py")(environments, arguments)
    if pfl := environments.python("pfl"):
        distributed = ["-m", "torch.distributed.run", "--nproc-per-node", str(CORES)]
        processes.append(Process([pfl, "round_pfl.py", *arguments], PATHS))
        processes.append(Process([pfl, *distributed, "round_pfl.py", *arguments], PATHS))
    if flower := environments.python("flower"):
        processes.append(Process([flower, "round_flower.py", *arguments], PATHS))
    return processes


def _trimmed_mean(environments: Environments, arguments: list[str]) -> list[Process]:
    """Run all in one process, since the rows take 4 GB: in Flower's environment if it exists."""
    python = environments.python("flower") or sys.executable
    return [Process([python, "trimmed_mean.py", *arguments], PATHS)]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, and how its results are presented."""

    title: str
    processes: Processes
    repeats: int
    check: str
    """What the contestants' checks are; they must agree."""
    notes: Callable[[Setting, Sequence[Times]], str] = lambda setting, times: ""
    warm_up: bool = True


def _limit_note(setting: Setting, times: Sequence[Times]) -> str:
    """Compare local training with the limit of the machine."""
    medians = {t.name: t.median for t in times}
    limit = medians["matrix-multiply limit"]
    plain = next(t.median for t in times if t.name.startswith("plain loop"))
    rate = training_flops(setting, setting.local_steps) / limit / 1e9
    return (
        f"The limit is the FLOPs of this training, done as products of large matrices: "
        f"{format_number(rate)} GFLOP/s. srfca reaches {limit / medians['srfca']:.0%} of it, "
        f"the plain loop {limit / plain:.0%}."
    )


def _share_note(setting: Setting, times: Sequence[Times]) -> str:
    """Compare a round with the same samples through a single model."""
    medians = {t.name: t.median for t in times}
    share = medians[LIMIT] / medians["srfca"]
    return (
        f"The limit is one model on the samples of all clients at once, without any updates: "
        f"srfca reaches {share:.0%} of it."
    )


def _data_note(setting: Setting, times: Sequence[Times]) -> str:
    """Tell if MNIST was missing."""
    digits = any(DIGITS in t.name for t in times) and not setting.quick
    note = "**Not on MNIST**, which was not found (`SRFCA_DATA`): 40 clients with digits, 60 steps."
    return note if digits else ""


BENCHMARKS = {
    "local_training": Benchmark(
        "Local training: 100 clients x 50 steps, MLP 784-200-10, batch 50, Adam",
        _script("local_training.py"), 9, "mean norm of the models", _limit_note,
    ),
    "federated_round": Benchmark(
        "One federated round: 100 clients x 5 steps, MLP 784-200-10, batch 50, SGD",
        _round_of("mlp"), 25, "norm of the step", _share_note,
    ),
    "convolutional_round": Benchmark(
        "One federated round: 16 clients x 5 steps, LEAF's CNN (two 5x5 convolutions, two dense "
        "layers), batch 20, SGD",
        _round_of("cnn"), 5, "norm of the step", _share_note,
    ),
    "recurrent_round": Benchmark(
        "One federated round: 16 clients x 5 steps, LEAF's LSTM (2 layers of 200, 80 characters), "
        "batch 20, SGD",
        _round_of("lstm"), 5, "norm of the step", _share_note,
    ),
    "pairwise_losses": Benchmark(
        "All pairwise losses: 100 models on 100 clients of 600 samples, MLP 784-200-10",
        _script("pairwise_losses.py"), 3, "clusters",
    ),
    "trimmed_mean": Benchmark(
        "Trimmed mean: 100 rows of 10 million, beta = 0.1", _trimmed_mean, 3, "norm",
    ),
    "whole_sr_fca": Benchmark(
        "Whole SR-FCA, rotated MNIST: 100 clients x 250 steps, MLP 784-200-10, Adam, R = 2",
        _script("whole_sr_fca.py"), 3, "clusters", _data_note, warm_up=False,
    ),
}  # fmt: skip


def describe_machine() -> str:
    """Return cores, memory and processor."""
    model = platform.processor() or "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{CORES} cores, {memory:.0f} GiB, {model}"


def main() -> None:
    """Run the benchmarks, and print or write the page of results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(BENCHMARKS), default=list(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one run each")
    parser.add_argument("--repeats", type=int, help="timed runs of every contestant")
    parser.add_argument(
        "--envs", type=Path, default=FOLDER / ".venv", help="folder with the environments"
    )
    parser.add_argument("--out", type=Path, help="write the page to this file, not to the terminal")
    arguments = parser.parse_args()
    environments = Environments(arguments.envs.absolute())
    setting = QUICK if arguments.quick else FULL
    options = ["--quick"] if arguments.quick else []
    command = " ".join(["python benchmarks/run.py", *sys.argv[1:]])
    parts = [
        f"# Results\n\n`{command}`\n\n"
        f"{describe_machine()}; load {os.getloadavg()[0]:.1f} at the start\n\n"
        f"{environments.versions()}"
    ]
    if arguments.quick:
        parts.append("Tiny sizes, to check that everything runs: the times mean nothing.")
    for name in arguments.only:
        benchmark = BENCHMARKS[name]
        print(benchmark.title, file=sys.stderr, flush=True)
        repeats = arguments.repeats or (1 if arguments.quick else benchmark.repeats)
        times = race(benchmark.processes(environments, options), repeats, benchmark.warm_up)
        warm_up = ", after one warm-up run" if benchmark.warm_up else ""
        runs = f"Medians over {repeats} interleaved runs{warm_up}."
        texts = [f"## {benchmark.title}", table(times, "srfca", benchmark.check), runs]
        parts.append("\n\n".join([*texts, benchmark.notes(setting, times)]).strip())
    page = "\n\n".join(parts) + "\n"
    if arguments.out:
        arguments.out.write_text(page)
    else:
        print(page)


if __name__ == "__main__":
    main()
