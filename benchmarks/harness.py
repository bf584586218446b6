"""Interleaved timing: contestants take turns, each in a process of its own environment.

A process serves one or several contestants. It prepares them, waits for commands, runs one
contestant per command and replies with the seconds it took. Only one contestant runs at a time, and
all of them run under the same conditions of the machine, so their medians can be compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from types import TracebackType

FOLDER = Path(__file__).parent
PREFIX = "reply: "
"""Marks the replies among everything else that a process prints."""
TOLERANCE = 1e-3
"""Largest relative difference between the checks of two contestants."""
ENVIRONMENT = {"GOMP_SPINCOUNT": "2000"}
"""What the srfca command sets; all contestants get it, so that srfca has no advantage."""


class Channel:
    """A contestant's process: commands on standard input, replies on standard output."""

    def ready(self, names: Sequence[str]) -> None:
        """Reply with the names of the contestants in this process."""
        self._send({"ready": list(names)})

    def next(self) -> str | None:
        """Return the contestant to run next, None when the benchmark is over."""
        return sys.stdin.readline().strip() or None

    def reply(self, seconds: float, check: float | None = None) -> None:
        """Reply with the time of a run, and a number by which results are compared."""
        self._send({"seconds": seconds, "check": check})

    def _send(self, content: object) -> None:
        sys.stdout.write(f"\n{PREFIX}{json.dumps(content)}\n")
        sys.stdout.flush()


Contestant = Callable[[], float | None]
"""Does the work, and returns a number by which results are compared."""


def serve(contestants: Mapping[str, Contestant]) -> None:
    """Run contestants on command, until the benchmark is over."""
    channel = Channel()
    channel.ready(list(contestants))
    while (name := channel.next()) is not None:
        start = perf_counter()
        check = contestants[name]()
        channel.reply(perf_counter() - start, check)


@dataclass
class Process:
    """A process that serves contestants, seen from the benchmark."""

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    def __enter__(self) -> Process:
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=FOLDER, env={**ENVIRONMENT, **os.environ, **self.env},
        )  # fmt: skip
        try:
            self.names = self._receive()["ready"]
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(self, name: str) -> tuple[float, float | None]:
        """Run a contestant once; return its seconds and its check."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        reply = self._receive()
        return reply["seconds"], reply["check"]

    def _receive(self) -> dict:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(PREFIX):
                return json.loads(line.removeprefix(PREFIX))
            if line.strip():
                print(line, end="", file=sys.stderr)
        raise RuntimeError(f"{' '.join(self.command)} ended with {self._process.wait()}")


@dataclass(frozen=True)
class Times:
    """The seconds of each run of a contestant, and its check."""

    name: str
    seconds: tuple[float, ...]
    check: float | None

    @property
    def median(self) -> float:
        """The median of all runs."""
        return median(self.seconds)


def race(
    processes: Sequence[Process], repeats: int, warm_up: bool = True, log: bool = True
) -> list[Times]:
    """Let all contestants take turns.

    Args:
        processes: What serves the contestants.
        repeats: Timed runs of each contestant.
        warm_up: Run each contestant once before.
        log: Print every run to standard error.

    Raises:
        RuntimeError: If a process dies, or two contestants disagree.
    """
    with ExitStack() as stack:
        for process in processes:
            stack.enter_context(process)
        contestants = {name: process for process in processes for name in process.names}
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        checks: dict[str, float | None] = {}
        for turn in range(repeats + warm_up):
            for name, process in _rotated(list(contestants.items()), turn):
                elapsed, check = process.run(name)
                checks.setdefault(name, check)
                if turn >= warm_up:
                    seconds[name].append(elapsed)
                if log:
                    kind = f"run {turn - warm_up + 1}" if turn >= warm_up else "warm-up"
                    print(f"  {kind:8} {name:44} {elapsed:9.3f} s", file=sys.stderr, flush=True)
    _require_agreement(checks)
    return [Times(name, tuple(runs), checks[name]) for name, runs in seconds.items()]


def _require_agreement(checks: Mapping[str, float | None]) -> None:
    """Raise an error if a contestant did different work than the others."""
    values = {name: check for name, check in checks.items() if check is not None}
    low, high = min(values.values()), max(values.values())
    if high - low > TOLERANCE * abs(high):
        raise RuntimeError(f"the contestants do not agree: {values}")


def _rotated(items: list[tuple[str, Process]], by: int) -> Iterator[tuple[str, Process]]:
    """Yield all items, starting with another one in each turn."""
    by %= len(items)
    yield from items[by:] + items[:by]


def table(times: Sequence[Times], baseline: str, check: str | None = None) -> str:
    """Return a Markdown table of medians, ranges, and medians relative to the baseline.

    Args:
        times: Times of all contestants.
        baseline: The contestant that all are compared with.
        check: What the checks are; None leaves their column out.
    """
    base = next(t.median for t in times if t.name == baseline)
    headers = ["", "median, s", "min to max, s", f"times {baseline}", *([check] if check else [])]
    lines = [f"| {' | '.join(headers)} |", "|---" * len(headers) + "|"]
    for t in times:
        cells = [
            f"**{t.name}**" if t.name == baseline else t.name,
            format_number(t.median),
            f"{format_number(min(t.seconds))} to {format_number(max(t.seconds))}",
            f"{t.median / base:.2f}",
        ]
        if check:
            cells.append("" if t.check is None else f"{t.check:.6g}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def format_number(value: float) -> str:
    """Format a number with three significant digits.

    >>> format_number(0.01234), format_number(1.5), format_number(123.4)
    ('0.0123', '1.50', '123')
    """
    return f"{value:#.3g}".rstrip(".")
