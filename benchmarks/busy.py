"""SR-FCA on an idle machine, and while other processes use all cores.

python benchmarks/busy.py

The threads of one torch operation wait for each other: they spin for a while, then sleep. The srfca
command lets them spin briefly (``srfca.threads.limit_spinning``); libgomp's default is much longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from statistics import median
from time import perf_counter

from srfca.threads import SPIN_COUNT

RUNS = 3
LOAD = "import torch; torch.set_num_threads(1); a = torch.randn(784, 784)\nwhile True: a @ a"
SPIN_COUNTS = {"srfca's spin count": SPIN_COUNT, "libgomp's default": 300_000}
"""Iterations that a waiting thread spins before it sleeps (``GOMP_SPINCOUNT``)."""


def seconds_of_run(spin_count: int) -> float:
    """Return the seconds of SR-FCA on rotated digits, including the start of the process."""
    start = perf_counter()
    subprocess.run(
        [sys.executable, "-m", "srfca", "run", "rotated-digits", "--json"],
        env={**os.environ, "GOMP_SPINCOUNT": str(spin_count)},
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return perf_counter() - start


def main() -> None:
    """Print a table of medians."""
    print("| | idle machine | all cores busy |\n|---|---|---|")
    seconds: dict[tuple[str, bool], list[float]] = {}
    for _ in range(RUNS):
        for load in (0, os.cpu_count() or 1):
            with ExitStack() as stack:
                for _ in range(load):
                    process = subprocess.Popen([sys.executable, "-c", LOAD])
                    stack.callback(process.kill)
                for name, spin_count in SPIN_COUNTS.items():
                    seconds.setdefault((name, load > 0), []).append(seconds_of_run(spin_count))
    for name in SPIN_COUNTS:
        idle, busy = (f"{median(seconds[name, loaded]):.1f} s" for loaded in (False, True))
        print(f"| {name} | {idle} | {busy} |")


if __name__ == "__main__":
    main()
