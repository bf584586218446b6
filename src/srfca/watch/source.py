"""What is watched: the run in a folder, as a page that changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from markupsafe import Markup

from srfca.callbacks.progress_folder import PROGRESS
from srfca.errors import InputError, require
from srfca.experiments.views import read_views
from srfca.report.page.page import LiveBox, View, content, macros, page, page_data
from srfca.report.page.report import report_views
from srfca.report.page.run_view import run_view
from srfca.watch.live import Live, finished, live
from srfca.watch.progress import Progress, ProgressReader

_RESULT_FILES = ("result.json", "tensors.safetensors", "run.json", "analysis.json")
SO_FAR = "What is known so far"


@dataclass(frozen=True)
class Look:
    """What is there at one time.

    Args:
        live: What is above the report.
        key: Identifies the report; it changes when the report does.
        title: Title of the page.
    """

    live: Live
    key: str
    title: str

    def box(self) -> Markup:
        """Return the HTML of what is above the report."""
        return Markup(macros("live.html").box(self.live))


class Source:
    """The run in a folder: one that is running, a server's, or finished ones.

    Args:
        folder: The ``--out`` of ``srfca run`` or ``srfca compare``, or a server's ``srfca.out``.

    Raises:
        InputError: If it holds no run.
    """

    def __init__(self, folder: Path) -> None:
        require(folder.is_dir(), f"there is no folder {folder}: start the run first, with --out")
        self.folder = folder
        require(
            (folder / PROGRESS).is_dir() or (folder / "journal").is_dir() or bool(self._results()),
            f"{folder} holds no run: give the --out of 'srfca run', or a server's srfca.out",
        )
        self._reader = ProgressReader(folder)
        self._lock = Lock()
        self._views: tuple[str, list[View], str] = ("", [], str(folder.name or folder))

    def look(self) -> Look:
        """Return what is there now; reports are not made yet."""
        with self._lock:
            progress = self._reader.read()
            return self._look(progress)

    def page(self) -> str:
        """Return the whole page."""
        with self._lock:
            look, views = self._made()
            return page(views, look.title, LiveBox(look.key, look.box()))

    def content(self) -> dict[str, Any]:
        """Return the report alone, for a page that is open: its HTML and the script's data."""
        with self._lock:
            look, views = self._made()
            return {
                "key": look.key,
                "html": str(content(views)),
                "data": page_data(views),
                "views": len(views),
            }

    def _look(self, progress: Progress | None) -> Look:
        shows_result = progress is None or progress.state in ("ended", "serving")
        results = self._results() if shows_result else []
        if results:
            key = f"results {_stamp(results)}"
            above = finished(len(results)) if progress is None else live(progress)
            title = self._views[2] if progress is None else _title(progress, self.folder)
            return Look(above, key, title)
        if progress is None:
            text = "Waiting for the run to begin, or to save its result."
            return Look(Live("starting", "Starting", text), "nothing", self.folder.name)
        key = f"stages {progress.started} {len(progress.history)}"
        return Look(live(progress), key, _title(progress, self.folder))

    def _made(self) -> tuple[Look, list[View]]:
        """Return what is there now, with its report: the one before if files just change."""
        progress = self._reader.read()
        look = self._look(progress)
        if look.key == self._views[0]:
            return look, self._views[1]
        try:
            views, title = self._make(look, progress)
        except InputError:  # files are being replaced
            key, views, _ = self._views
            return Look(look.live, key, look.title), views
        self._views = (look.key, views, title)
        return Look(look.live, look.key, title), views

    def _make(self, look: Look, progress: Progress | None) -> tuple[list[View], str]:
        if look.key.startswith("results"):
            views, title = report_views(read_views(self.folder))
            return views, title
        running = None if progress is None else progress.view()
        if running is None:
            return [], look.title
        return [run_view(running, heading=SO_FAR)], running.title

    def _results(self) -> list[Path]:
        """Return the folders of results: this one, or those in it."""
        if (self.folder / "result.json").exists():
            return [self.folder]
        return sorted(path.parent for path in self.folder.glob("*/result.json"))


def _title(progress: Progress, folder: Path) -> str:
    start = progress.start
    if start is None:
        return progress.experiment or folder.name
    parts = (progress.experiment, start.method, f"seed {start.seed}")
    return ", ".join(part for part in parts if part)


def _stamp(folders: Sequence[Path]) -> str:
    """Return what changes when a file of a result does."""
    files = [folder / name for folder in folders for name in _RESULT_FILES]
    times = [file.stat().st_mtime_ns for file in files if file.exists()]
    return f"{len(times)} {max(times, default=0)}"
