"""``command.json``: the arguments of a run with a journal, so that it can be resumed."""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path
from typing import Any

from srfca.errors import InputError, require
from srfca.files import replace_file

FILE = "command.json"
_PATHS = ("data", "data_dir")
_NOT_SAVED = ("out", "journal", "report", "track")


def write(folder: Path, arguments: dict[str, Any]) -> None:
    """Write the arguments of a run.

    Raises:
        InputError: If the folder holds the arguments of another run.
    """
    text = json.dumps(arguments, indent=1, default=lambda path: str(path.absolute()))
    if (folder / FILE).exists():
        present, new = read(folder), _with_paths(json.loads(text))
        require(
            present | {"as_json": None} == new | {"as_json": None},
            f"{folder} holds the journal of a run with other settings: choose another --out, or "
            f"continue that run with 'srfca resume {folder}'",
        )
    replace_file(folder / FILE, f"{text}\n".encode())


def read(folder: Path) -> dict[str, Any]:
    """Return the arguments of the run in a folder.

    Raises:
        InputError: If there are none, or the file is damaged.
    """
    from srfca.cli.run import run

    try:
        arguments = _with_paths(json.loads((folder / FILE).read_bytes()))
        missing = sorted(set(signature(run).parameters) - set(arguments) - set(_NOT_SAVED))
        require(not missing, f"{folder / FILE} is damaged: it lacks {', '.join(missing)}")
    except OSError as error:
        raise InputError(f"{folder} holds no run with a journal: {error}") from error
    except (ValueError, LookupError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{folder / FILE} is damaged: {error!r}") from error
    return arguments


def _with_paths(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments | {name: Path(arguments[name]) for name in _PATHS if arguments[name]}
