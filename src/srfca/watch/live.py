"""What is shown above the report during a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import localtime, strftime

import numpy as np

from srfca.clustering.partition import Partition
from srfca.report.page.facts import Fact
from srfca.report.view import TRIALS, RunView, moved_clients
from srfca.watch.progress import Progress

MAX_NAMES = 12
"""Most clients that are named in one place."""
_TITLES = {
    "starting": "Starting",
    "running": "Running",
    "ended": "Saving the result",
    "serving": "Serving",
    "failed": "Failed",
    "killed": "Stopped",
    "finished": "Finished",
}
_WIDTH, _HEIGHT = 600, 72
"""Of the small learning curve, in its own units."""


@dataclass(frozen=True)
class Curve:
    """A small learning curve.

    Args:
        title: What it shows.
        path: Its line, as a path of SVG.
        first: The first value, as text.
        last: The newest one.
    """

    title: str
    path: str
    first: str
    last: str


@dataclass(frozen=True)
class StageLine:
    """A stage that is done.

    Args:
        name: Name of the stage.
        clusters: Clusters of several clients, and clients alone.
        score: On held-out data.
        moved: Clients that are in another cluster than before.
        missing: Clients that did not reply.
        seconds: How long it took.
    """

    name: str
    clusters: str
    score: str
    moved: str
    missing: str
    seconds: str


@dataclass(frozen=True)
class Live:
    """What the page shows of a run at one time.

    Args:
        state: A key of the states.
        title: The state and the stage, in words.
        subtitle: What happens inside of the stage.
        fraction: How much of the stage is done, None if unknown.
        since: When the run began, in seconds since 1970; None if it no longer runs.
        facts: Numbers.
        alarms: What a person should look at.
        curve: The learning curve, if there is one.
        stages: Those that are done, the newest first.
        log: Messages with their times, the newest first.
    """

    state: str
    title: str
    subtitle: str = ""
    fraction: float | None = None
    since: float | None = None
    facts: Sequence[Fact] = ()
    alarms: Sequence[str] = ()
    curve: Curve | None = None
    stages: Sequence[StageLine] = ()
    log: Sequence[tuple[str, bool, str]] = field(default=())


def live(progress: Progress) -> Live:
    """Return what is shown of a run."""
    state = progress.state
    view = progress.view()
    stages = () if view is None else view.main_stages
    moved = [np.zeros(0, dtype=np.int64)] * bool(stages)
    moved += [moved_clients(before, after) for before, after in pairwise(stages)]
    lines = [] if view is None else _stage_lines(view, moved)
    stage, at = progress.now["stage"], progress.now["round"]
    steps = stage["steps"] if stage else 0
    running = state in ("starting", "running", "serving", "ended")
    return Live(
        state=state,
        title=_title(progress),
        subtitle=_subtitle(progress) if running else str(progress.now["message"]),
        fraction=_fraction(stage["done"], steps, at) if stage else None,
        since=progress.started if running else None,
        facts=_facts(progress, view, moved),
        alarms=_alarms(progress, view),
        curve=_curve(progress),
        stages=lines[::-1],
        log=[
            (strftime("%H:%M:%S", localtime(line["time"])), line["warning"], line["text"])
            for line in reversed(progress.now["log"])
        ],
    )


def finished(num_runs: int = 1) -> Live:
    """Return what is shown above a report of runs that are done."""
    if num_runs == 1:
        return Live("finished", _TITLES["finished"], "The report of the run is below.")
    text = f"The report of {num_runs} runs is below. It grows when more of them finish."
    return Live("finished", _TITLES["finished"], text)


def _title(progress: Progress) -> str:
    title, stage = _TITLES[progress.state], progress.now["stage"]
    return f"{title}: {stage['name']}" if stage and progress.state != "ended" else title


def _subtitle(progress: Progress) -> str:
    """Return the round and the local steps, or what is waited for."""
    stage, at = progress.now["stage"], progress.now["round"]
    parts = []
    if at is not None:
        training = "" if stage and stage["name"] == at["training"] else f" of {at['training']}"
        parts.append(f"round {at['number']:,} of {at['total']:,}{training}")
    if stage and stage["steps"]:
        done = min(stage["done"], stage["steps"])
        parts.append(f"{done:,} of {stage['steps']:,} local steps")
    log = progress.now["log"]
    if not parts and progress.state == "starting":
        parts.append(log[-1]["text"] if log else "Data and clients are being prepared.")
    if not parts and progress.state == "serving":
        parts.append("New clients are placed as they connect.")
    if not parts and progress.state == "ended":
        parts.append("The method has ended; its answer is being analyzed and saved.")
    return ", ".join(parts)


def _fraction(done: int, steps: int, at: dict[str, int] | None) -> float | None:
    if steps:
        return min(done / steps, 1.0)
    return None if at is None else at["number"] / max(at["total"], 1)


def _facts(progress: Progress, view: RunView | None, moved: Sequence[np.ndarray]) -> list[Fact]:
    if progress.start is None:
        return []
    m = len(progress.start.client_ids)
    trials = 0 if view is None else len(view.history) - len(view.main_stages)
    remark = f"{trials:,} of them {'a trial' if trials == 1 else 'trials'}" if trials else ""
    shown = [Fact("stages done", f"{len(progress.history):,}", remark)]
    if view is not None and view.clustered:
        shown.append(Fact("clusters now", *_clusters(view.partition)))
        shown.append(Fact("moved in the last stage", f"{len(moved[-1]):,}", f"of {m:,} clients"))
    missing = progress.now["num_missing"]
    connected = progress.now["connected"]
    if connected is not None:
        count = connected["clients"] - connected["num_absent"]
        return [
            *shown, Fact("connected now", f"{count:,}", f"of {connected['clients']:,} clients"),
        ]  # fmt: skip
    shown.append(Fact("missing in the last round", f"{missing:,}", f"of {m:,} clients"))
    spent = progress.now["spent"]["local_steps"] / m
    shown.append(Fact("local steps per client", f"{spent:,.0f}"))
    return shown


def _clusters(partition: Partition) -> tuple[str, str]:
    """Return the number of clusters of several clients, and the clients that are in none."""
    alone, outside = len(partition.alone), len(partition.unclustered)
    remarks = [f"{alone:,} alone"] * (alone > 0) + [f"{outside:,} in none"] * (outside > 0)
    return f"{partition.num_clusters - alone:,}", ", ".join(remarks)


def _stage_lines(view: RunView, moved: Sequence[np.ndarray]) -> list[StageLine]:
    lines = []
    for stage, clients in zip(view.main_stages, moved, strict=True):
        count, remark = _clusters(stage.partition)
        score = "-" if stage.loss is None else f"loss {stage.loss:.3g}"
        if stage.accuracy is not None:
            score = f"{stage.accuracy:.1%}"
        names = [view.client_ids[client] for client in clients.tolist()]
        missing = Counter(reply["client"] for reply in stage.notes.get("missing", ()))
        lines.append(
            StageLine(
                stage.name,
                f"{count} ({remark})" if remark else count,
                score,
                named(names) or "none",
                named([f"{name} ({times})" for name, times in missing.most_common()]) or "none",
                f"{stage.seconds:,.1f}",
            )
        )
    return lines


def _alarms(progress: Progress, view: RunView | None) -> list[str]:
    """Return what a person should look at."""
    alarms = []
    if progress.state == "killed":
        alarms.append(
            "The process of this run no longer exists. If the run has a journal, 'srfca resume' "
            "continues it."
        )
    if progress.state == "failed":
        alarms.append(str(progress.now["message"]))
    connected = progress.now["connected"]
    if connected is not None and connected["num_absent"]:
        absent = named(connected["absent"], connected["num_absent"])
        alarms.append(f"Not connected, or busy: {absent}.")
    reasons: dict[str, list[str]] = {}
    for reply in progress.now["missing"]:
        reasons.setdefault(reply["reason"], []).append(reply["client"])
    for reason, clients in reasons.items():
        alarms.append(f"No reply in the last round ({reason}): {named(clients)}.")
    if unnamed := progress.now["num_missing"] - len(progress.now["missing"]):
        alarms.append(f"{unnamed:,} more clients did not reply in the last round.")
    if view is not None:
        last = view.history[-1]
        if view.note("warning"):
            alarms.append(f"This result is uncertain so far: {view.note('warning')}.")
        if last.loss is not None and not np.isfinite(last.loss):
            alarms.append(f"The loss on held-out data is {last.loss} after {last.name}.")
    alarms += [line["text"] for line in progress.now["log"] if line["warning"]][-3:]
    return list(dict.fromkeys(alarms))


def named(clients: Sequence[str], count: int | None = None) -> str:
    """Return names of clients, not too many of them.

    Args:
        clients: Their names, or the first of them.
        count: How many there are; None is as many as names.

    >>> named(["a", "b"])
    'a, b'
    """
    unnamed = (len(clients) if count is None else count) - MAX_NAMES
    more = f" and {unnamed:,} more" if unnamed > 0 else ""
    return ", ".join(clients[:MAX_NAMES]) + more


def _curve(progress: Progress) -> Curve | None:
    """Return the learning curve: means over clusters, of one kind of score only."""
    candidates = [point for point in progress.points if point.training not in TRIALS]
    points = [point for point in candidates if point.split == "validation"]
    name = "held-out"
    if len(points) < 2:
        points, name = [point for point in candidates if point.split == "train"], "training"
    accuracy = all(point.accuracy is not None for point in points)
    rows = [point.accuracy if accuracy else point.loss for point in points]
    means = [_mean(row) for row in rows if row is not None]
    values = [value for value in means if value is not None]
    if len(values) < 2:
        return None
    form = ".1%" if accuracy else ".3g"
    title = f"{name} {'accuracy' if accuracy else 'loss'}"
    return Curve(title, _path(values), format(values[0], form), format(values[-1], form))


def _mean(values: Sequence[float | None]) -> float | None:
    finite = [value for value in values if value is not None and np.isfinite(value)]
    return sum(finite) / len(finite) if finite else None


def _path(values: Sequence[float]) -> str:
    """Return a line through values as a path of SVG.

    >>> _path([0.0, 1.0])
    'M0.0,68.0 L600.0,4.0'
    """
    low, high = min(values), max(values)
    scale = (_HEIGHT - 8) / (high - low) if high > low else 0.0
    wide = _WIDTH / (len(values) - 1)
    points = [
        f"{number * wide:.1f},{_HEIGHT - 4 - (value - low) * scale:.1f}"
        for number, value in enumerate(values)
    ]
    return "M" + " L".join(points)
