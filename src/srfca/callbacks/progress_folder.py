"""The progress of a run in files, so that ``srfca watch`` can show it from another process.

A folder ``progress`` beside the result holds ``start.json`` (what the run is), a pair of files for
each stage that is done (``stage-0.json``, ``stage-0.safetensors``), and ``now.json``, which is
small and written again at most once a second.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import monotonic, time
from typing import Any, Literal

from safetensors.torch import save

from srfca import progress
from srfca.errors import InputError, SrfcaWarning
from srfca.federation.middleware.counting import Budget, MissingReply
from srfca.files import replace_file, writable_folder
from srfca.methods import CurvePoint, Monitor, Result, RoundEnd, RunStart, Stage
from srfca.methods._common.stage_files import pack_stage, pack_tensors

PROGRESS = "progress"
"""Name of the folder."""
START, NOW = "start.json", "now.json"
SECONDS = 1.0
"""Minimum time between two writes of ``now.json`` within a stage."""
MAX_LOG = 50
"""Most messages that are kept."""
MAX_NAMES = 200
"""Most clients that ``now.json`` names."""


def stage_file(number: int, kind: Literal["json", "safetensors"]) -> str:
    """Return the name of a stage's file: ``kind`` is ``json`` or ``safetensors``."""
    return f"stage-{number}.{kind}"


class ProgressFolder(Monitor):
    """A callback that writes the progress of a run to files, for ``srfca watch``.

    A folder of an earlier run is emptied. If a file cannot be written, a warning says so once, and
    the run continues.

    Args:
        folder: Where the result will be; the files are in its folder ``progress``.
        experiment: Name of the experiment, if it has one.

    Raises:
        InputError: If the folder cannot be written to.

    Examples:
        >>> import tempfile
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.methods import FedAvg
        >>> federation = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> method = FedAvg(local=LocalTraining(steps=5))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = method.fit(federation, callbacks=ProgressFolder(folder))
        ...     sorted(path.name for path in Path(folder, "progress").glob("*.safetensors"))
        ['stage-0.safetensors']
    """

    def __init__(self, folder: str | Path, experiment: str = "") -> None:
        self.folder = Path(folder) / PROGRESS
        self.experiment = experiment
        self._num_stages = 0
        self._start: dict[str, Any] = {"client_ids": ()}
        self._broken = False
        self._due = 0.0
        self._stages: list[dict[str, Any]] = []
        self._points: list[CurvePoint] = []
        self._missing: tuple[MissingReply, ...] = ()
        self._log: deque[dict[str, Any]] = deque(maxlen=MAX_LOG)
        self._now: dict[str, Any] = {
            "state": "starting", "message": "", "round": None, "connected": None,
            "spent": asdict(Budget()), "pid": os.getpid(), "host": platform.node(),
        }  # fmt: skip
        self.remove()
        writable_folder(self.folder)
        self._write_now()

    def run_start(self, start: RunStart) -> None:
        """Write what the run is."""
        self._start = {**asdict(start), "experiment": self.experiment, "started": time()}
        self._write(START, _json(self._start))
        self._set(state="running")

    @contextmanager
    def stage(self, name: str, steps: int) -> Iterator[progress.Callback]:
        """Show a stage, and the local steps that are done."""
        entered: dict[str, Any] = {"name": name, "steps": steps, "done": 0, "started": time()}
        self._stages.append(entered)
        self._set(round=None)

        def advance(steps: int) -> None:
            entered["done"] += steps
            self._write_if_due()

        try:
            yield advance
        finally:
            self._stages.remove(entered)
            self._write_if_due()

    def round_end(self, end: RoundEnd) -> None:
        """Note the round, its scores and missing replies."""
        self._now["round"] = {"training": end.training, "number": end.number, "total": end.total}
        self._now["spent"] = asdict(end.spent)
        self._missing = end.missing
        if end.point is not None:
            self._points.append(end.point)
        self._write_if_due()

    def stage_end(self, stage: Stage) -> None:
        """Write the stage, unless it concerns only some of the clients."""
        if len(stage.labels) != len(self._start["client_ids"]):
            return
        number = self._num_stages
        self._write(stage_file(number, "safetensors"), save(pack_tensors([stage])))
        self._write(stage_file(number, "json"), _json(pack_stage(stage)))
        self._num_stages += 1
        self._points.clear()
        self._missing = ()
        self._write_now()

    def run_end(self, result: Result) -> None:
        """Note that the method has ended."""
        self._set(state="ended", round=None)

    def run_failed(self, error: BaseException) -> None:
        """Note why the run failed."""
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Note why a run failed, also outside of ``fit``.

        Args:
            error: What ended the run.
        """
        stopped = isinstance(error, KeyboardInterrupt)
        message = "interrupted" if stopped else str(error) or type(error).__name__
        self._set(state="failed", message=message)

    def serving(self, client_ids: Sequence[str], connected: Sequence[str]) -> None:
        """Note that a server places new clients, and which of its clients are connected.

        Args:
            client_ids: All clients, placed ones included.
            connected: Those that are connected.
        """
        if tuple(client_ids) != tuple(self._start["client_ids"]):
            self._start["client_ids"] = tuple(client_ids)
            if "started" in self._start:
                self._write(START, _json(self._start))
        present = set(connected)
        absent = [client for client in client_ids if client not in present]
        self._set(
            state="serving",
            message="",
            round=None,
            connected={
                "clients": len(client_ids),
                "num_absent": len(absent),
                "absent": absent[:MAX_NAMES],
            },
        )

    def note(self, text: str, warning: bool = False) -> None:
        """Add a message to the log of the run.

        Args:
            text: The message.
            warning: Whether it is a warning.
        """
        self._log.append({"time": time(), "warning": warning, "text": text})
        self._write_now()

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Note an error that ends the ``with`` block.

        Yields:
            Nothing.
        """
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    @contextmanager
    def noting_warnings(self) -> Iterator[None]:
        """Note Python's warnings inside the ``with`` block, in addition to showing them.

        Yields:
            Nothing.
        """
        show = warnings.showwarning

        def note(message: Warning | str, *details: Any, **names: Any) -> None:
            self.note(str(message), warning=True)
            show(message, *details, **names)

        warnings.showwarning = note
        try:
            yield
        finally:
            warnings.showwarning = show

    @contextmanager
    def noting_log(self, logger: logging.Logger, package: str) -> Iterator[None]:
        """Note what a package writes to a log inside the ``with`` block.

        Args:
            logger: The log.
            package: Name of the package's folder; messages of other files are not noted.

        Yields:
            Nothing.
        """
        handler = _Handler(self, package)
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)

    def remove(self) -> None:
        """Remove the files: the result has been saved, and has all that they say."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _set(self, **values: Any) -> None:
        self._now.update(values)
        self._write_now()

    def _write_if_due(self) -> None:
        if monotonic() >= self._due:
            self._write_now()

    def _write_now(self) -> None:
        self._due = monotonic() + SECONDS
        self._now |= {
            "updated": time(),
            "num_stages": self._num_stages,
            "stage": self._stages[-1] if self._stages else None,
            "points": [asdict(point) for point in self._points],
            "missing": [asdict(reply) for reply in self._missing[:MAX_NAMES]],
            "num_missing": len(self._missing),
            "log": list(self._log),
        }
        self._write(NOW, _json(self._now))

    def _write(self, name: str, content: bytes) -> None:
        if self._broken:
            return
        try:
            replace_file(self.folder / name, content)
        except InputError as error:
            self._broken = True
            warnings.warn(f"progress is no longer written: {error}", SrfcaWarning, stacklevel=2)


class _Handler(logging.Handler):
    """Passes records of a package on to a ``ProgressFolder``."""

    def __init__(self, folder: ProgressFolder, package: str) -> None:
        super().__init__(logging.INFO)
        self._folder, self._package = folder, package

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record."""
        if Path(record.pathname).parent.name == self._package:
            self._folder.note(record.getMessage(), record.levelno >= logging.WARNING)


def _json(content: Mapping[str, Any]) -> bytes:
    """Return JSON; values that it does not know, as in a method's parameters, become text."""
    return json.dumps(content, default=str).encode()
