"""A race: contestants take turns on one machine, each in a process and an environment of its own.

A process serves one or several contestants. It gets ready, then waits for orders; it works only
when it is told to, and answers with the seconds it took. So one contestant runs at a time, all meet
the same moods of the machine, and medians can be compared.
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

HERE = Path(__file__).parent
MARK = "answer: "
"""What tells an answer from whatever else a process prints."""
ENVIRONMENT = {"GOMP_SPINCOUNT": "2000"}
"""What srfca sets for itself; so that it has no advantage by it, all contestants have it."""


class Orders:
    """The served side: orders come by standard input, answers go by standard output."""

    def ready(self, names: Sequence[str]) -> None:
        """Say which contestants are here."""
        self._say({"ready": list(names)})

    def next(self) -> str | None:
        """The next contestant that is to run; None when the race is over."""
        return sys.stdin.readline().strip() or None

    def answer(self, seconds: float, check: float | None = None) -> None:
        """Say how long it took, and a figure by which answers can be compared."""
        self._say({"seconds": seconds, "check": check})

    def _say(self, content: object) -> None:
        sys.stdout.write(f"\n{MARK}{json.dumps(content)}\n")
        sys.stdout.flush()


Contestant = Callable[[], float | None]
"""Does the work, and returns a figure by which answers can be compared."""


def serve(contestants: Mapping[str, Contestant]) -> None:
    """Serve some contestants until the race is over."""
    orders = Orders()
    orders.ready(list(contestants))
    while (name := orders.next()) is not None:
        start = perf_counter()
        check = contestants[name]()
        orders.answer(perf_counter() - start, check)


@dataclass
class Server:
    """The other side: a process that serves contestants."""

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    def __enter__(self) -> Server:
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=HERE, env={**ENVIRONMENT, **os.environ, **self.env},
        )  # fmt: skip
        try:
            self.names = self._hear()["ready"]
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
        """Seconds and check of one run of a contestant."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        heard = self._hear()
        return heard["seconds"], heard["check"]

    def _hear(self) -> dict:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
            if line.strip():
                print(line, end="", file=sys.stderr)
        raise RuntimeError(f"{' '.join(self.command)} ended with {self._process.wait()}")


@dataclass(frozen=True)
class Times:
    """How long a contestant took, run by run, and what it answered when it was warmed up."""

    name: str
    seconds: tuple[float, ...]
    check: float | None

    @property
    def median(self) -> float:
        """Of all runs."""
        return median(self.seconds)


def race(
    servers: Sequence[Server], repeats: int, warm_up: bool = True, log: bool = True
) -> list[Times]:
    """Let all contestants take turns: once to warm up, then ``repeats`` times."""
    with ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
        entrants = {name: server for server in servers for name in server.names}
        seconds: dict[str, list[float]] = {name: [] for name in entrants}
        checks: dict[str, float | None] = {}
        for turn in range(repeats + warm_up):
            for name, server in _rotated(list(entrants.items()), turn):
                taken, check = server.run(name)
                checks.setdefault(name, check)
                if turn >= warm_up:
                    seconds[name].append(taken)
                if log:
                    kind = f"run {turn - warm_up + 1}" if turn >= warm_up else "warm-up"
                    print(f"  {kind:8} {name:44} {taken:9.3f} s", file=sys.stderr, flush=True)
    _require_agreement(checks)
    return [Times(name, tuple(taken), checks[name]) for name, taken in seconds.items()]


def _require_agreement(checks: Mapping[str, float | None]) -> None:
    """Refuse a race in which somebody did other work than the rest."""
    told = {name: check for name, check in checks.items() if check is not None}
    low, high = min(told.values()), max(told.values())
    if high - low > 1e-3 * abs(high):
        raise RuntimeError(f"the contestants do not agree: {told}")


def _rotated(items: list[tuple[str, Server]], by: int) -> Iterator[tuple[str, Server]]:
    """All items, another one first each time."""
    by %= len(items)
    yield from items[by:] + items[:by]


def table(times: Sequence[Times], ours: str, check: str | None = None) -> str:
    """Medians, spread, and how many times as long as ours everybody took, as Markdown."""
    base = next(t.median for t in times if t.name == ours)
    heads = ["", "median, s", "least to most, s", f"times {ours}", *([check] if check else [])]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for t in times:
        cells = [
            f"**{t.name}**" if t.name == ours else t.name,
            figure(t.median),
            f"{figure(min(t.seconds))} to {figure(max(t.seconds))}",
            f"{t.median / base:.2f}",
        ]
        if check:
            cells.append("" if t.check is None else f"{t.check:.6g}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(value: float) -> str:
    """Three figures that count.

    >>> figure(0.01234), figure(1.5), figure(123.4)
    ('0.0123', '1.50', '123')
    """
    return f"{value:#.3g}".rstrip(".")
