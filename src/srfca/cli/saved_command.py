"""``command.json``: the arguments of a run with a journal, so that it can be resumed."""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path
from typing import Any

from srfca.errors import InputError, require
from srfca.json_files import damaged, read_json, write_json

FILE = "command.json"
FORMAT = 1
_REMEDY = "start the run again with 'srfca run' and its options, and --overwrite"
_PATHS = ("data", "data_dir", "report")
_NOT_SAVED = ("out", "journal", "overwrite", "literal")
_FREE = {"as_json": None, "report": None, "track": None, "ray": None}
"""What may differ when a run is continued: it does not change the result."""


def write(folder: Path, arguments: dict[str, Any]) -> None:
    """Write the arguments of a run.

    Raises:
        InputError: If the folder holds the arguments of another run.
    """
    text = json.dumps(arguments, indent=1, default=lambda path: str(path.absolute()))
    if (folder / FILE).exists():
        present, new = read(folder), _with_paths(json.loads(text))
        require(
            present | _FREE == new | _FREE,
            f"{folder} holds the journal of a run with other settings: choose another --out, "
            f"continue that run with 'srfca resume {folder}', or replace it with --overwrite",
        )
    write_json(folder / FILE, json.loads(text), FORMAT)


def read(folder: Path) -> dict[str, Any]:
    """Return the arguments of the run in a folder.

    Raises:
        InputError: If there are none, or the file is damaged.
    """
    from srfca.cli.run import run

    try:
        arguments = read_json(folder / FILE, FORMAT, _REMEDY)
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} holds no run with a journal, which 'srfca run --journal --out DIR' keeps"
        ) from error
    expected = set(signature(run).parameters) - set(_NOT_SAVED)
    if differing := sorted(expected ^ set(arguments)):
        raise damaged(folder / FILE, f"wrong or missing: {', '.join(differing)}", _REMEDY)
    return _with_paths(arguments)


def _with_paths(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments | {name: Path(arguments[name]) for name in _PATHS if arguments[name]}
