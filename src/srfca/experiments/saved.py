"""Runs on disk: a result, and ``run.json`` with its figures and the settings that led to it.

A run is known by a digest of everything that decides it, so that one that is there need not be
done again.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from srfca._version import __version__
from srfca.errors import InputError, require
from srfca.experiments.config import SHARED, Experiment
from srfca.experiments.runner import Outcome, Row
from srfca.files import replace_file
from srfca.methods._common.result import is_intact

RUN, COMMAND = "run.json", "command.json"
ABOUT = ("settings", "srfca", "run_digest", "figures_digest")
"""What ``run.json`` says besides the figures."""
OPTIONS = {
    "name", "data", "model", "device", "data_dir", "quick", "set_",
    "method", "seed", "personalise", "as_json",
}  # fmt: skip
"""What ``command.json`` says."""


def settings(experiment: Experiment, method: str) -> dict[str, dict[str, Any]]:
    """Those settings of an experiment that matter to a method."""
    return {part: dict(experiment.sections[part]) for part in (*SHARED, method)}


def digest(experiment: Experiment, method: str, seed: int) -> str:
    """Tells a run from all others: its settings, its data, its seed, and who ran it."""
    return _digest({
        "settings": settings(experiment, method),
        "own": experiment.fingerprint,
        "seed": seed,
        "srfca": __version__,
    })  # fmt: skip


def save(outcome: Outcome, experiment: Experiment, folder: Path) -> None:
    """Write a result and its figures; ``run.json`` comes last, so where it is, all is."""
    outcome.result.save(folder)
    row = outcome.row()
    about = (
        settings(experiment, outcome.method),
        __version__,
        digest(experiment, outcome.method, outcome.result.seed),
        _digest(row),
    )
    content = row | dict(zip(ABOUT, about, strict=True))
    replace_file(folder / RUN, (json.dumps(content, indent=1) + "\n").encode())


def read(folder: Path, expected: str) -> Row | None:
    """The figures of the run with this digest, or None if it is not there or is damaged."""
    try:
        row: Row = json.loads((folder / RUN).read_bytes())
        _, _, run, figures = [row.pop(name) for name in ABOUT]
        whole = is_intact(folder)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return row if whole and (run, figures) == (expected, _digest(row)) else None


def write_command(folder: Path, options: dict[str, Any]) -> None:
    """Write down what a run was asked for, by which it can go on; another run's stays."""
    text = json.dumps(options, indent=1, default=lambda path: str(path.absolute()))
    if (folder / COMMAND).exists():
        known, asked = read_command(folder), _with_paths(json.loads(text))
        require(
            known | {"as_json": None} == asked | {"as_json": None},
            f"{folder} holds the journal of a run with other settings: choose another --out, or "
            f"go on with that one by 'srfca resume {folder}'",
        )
    replace_file(folder / COMMAND, f"{text}\n".encode())


def read_command(folder: Path) -> dict[str, Any]:
    """What ``write_command`` wrote."""
    try:
        options = _with_paths(json.loads((folder / COMMAND).read_bytes()))
        lacking = sorted(OPTIONS - set(options))
        require(not lacking, f"{folder / COMMAND} is damaged: it lacks {', '.join(lacking)}")
    except OSError as error:
        raise InputError(f"{folder} holds no run with a journal: {error}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{folder / COMMAND} is damaged: {error!r}") from error
    return options


def _with_paths(options: dict[str, Any]) -> dict[str, Any]:
    paths = {name: Path(options[name]) for name in ("data", "data_dir") if options[name]}
    return options | paths


def _digest(content: Any) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
