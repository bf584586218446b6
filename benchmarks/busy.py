"""A run of SR-FCA while other processes take all cores, and while none does.

python benchmarks/busy.py

Threads of an operation wait for each other: spinning, or asleep after a while. ``import srfca``
asks for little of the first; torch's own way is that of libgomp.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from statistics import median
from time import perf_counter

RUNS = 3
OTHER = "import torch; torch.set_num_threads(1); a = torch.randn(784, 784)\nwhile True: a @ a"
WAITS = {"as srfca has it": "2000", "as torch has it": "300000"}
"""How often a thread looks before it goes to sleep (``GOMP_SPINCOUNT``)."""


def seconds(looks: str) -> float:
    """Of SR-FCA on rotated digits, the start of the process included."""
    start = perf_counter()
    subprocess.run(
        [sys.executable, "-m", "srfca", "run", "rotated-digits", "--json"],
        env={**os.environ, "GOMP_SPINCOUNT": looks}, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return perf_counter() - start


def main() -> None:
    """Print the medians."""
    print("| | nobody else | every core taken |\n|---|---|---|")
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(RUNS):
        for others in (0, os.cpu_count() or 1):
            with ExitStack() as stack:
                for _ in range(others):
                    busy = subprocess.Popen([sys.executable, "-c", OTHER])
                    stack.callback(busy.kill)
                for name, looks in WAITS.items():
                    times.setdefault((name, others > 0), []).append(seconds(looks))
    for name in WAITS:
        alone, beside = (f"{median(times[name, taken]):.1f} s" for taken in (False, True))
        print(f"| {name} | {alone} | {beside} |")


if __name__ == "__main__":
    main()
