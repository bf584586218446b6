"""Read what ``ProgressFolder`` writes."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load

from srfca.callbacks.progress_folder import NOW, PROGRESS, START, stage_file
from srfca.methods import CurvePoint, RunStart, Stage
from srfca.methods._common.stage_files import unpack_history
from srfca.report.view import RunView


@dataclass(frozen=True, eq=False)
class Progress:
    """How far a run is.

    Args:
        now: What ``now.json`` holds.
        start: What the run is, if it has begun.
        experiment: Its name, if it has one.
        started: When it began, in seconds since 1970.
        history: The stages that are done.
    """

    now: Mapping[str, Any]
    start: RunStart | None = None
    experiment: str = ""
    started: float | None = None
    history: tuple[Stage, ...] = ()

    @property
    def state(self) -> str:
        """``starting``, ``running``, ``ended``, ``failed``, ``serving`` or ``killed``."""
        state = str(self.now["state"])
        if state in ("failed", "ended") or is_alive(self.now):
            return state
        return "killed"

    @property
    def points(self) -> list[CurvePoint]:
        """The points of all learning curves so far."""
        current = [CurvePoint.from_json(point) for point in self.now["points"]]
        return [point for stage in self.history for point in stage.curve] + current

    def view(self) -> RunView | None:
        """Return what a report shows of the run so far, None before the first stage is done."""
        if self.start is None or not self.history:
            return None
        return RunView.running(self.start, self.history, self.experiment)


class ProgressReader:
    """Reads the progress of a run again and again; stages that it has read are kept.

    Args:
        folder: Where the result will be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / PROGRESS
        self._started: float | None = None
        self._history: tuple[Stage, ...] = ()

    def read(self) -> Progress | None:
        """Return the progress, None if there is none, or files are being replaced or damaged."""
        try:
            now = json.loads((self.folder / NOW).read_bytes())
            if not (self.folder / START).exists():
                return Progress(now)
            content = json.loads((self.folder / START).read_bytes())
            experiment, started = content.pop("experiment"), content.pop("started")
            if started != self._started:
                self._started, self._history = started, ()
            while len(self._history) < now["num_stages"]:
                self._history += (self._read_stage(len(self._history)),)
            start = RunStart(**content | {"client_ids": tuple(content["client_ids"])})
        except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError):
            return None
        return Progress(now, start, experiment, started, self._history)

    def _read_stage(self, number: int) -> Stage:
        tensors = load((self.folder / stage_file(number, "safetensors")).read_bytes())
        content = json.loads((self.folder / stage_file(number, "json")).read_bytes())
        return unpack_history([content], tensors)[0]


def is_alive(now: Mapping[str, Any]) -> bool:
    """Return whether the process of a run exists; of another machine it is unknown, and assumed."""
    if now["host"] != platform.node():
        return True
    try:
        os.kill(int(now["pid"]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it exists, and is another user's
        return True
    return True
