"""Templates of Flower apps: ``srfca flower new``."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path

from srfca.errors import InputError, require
from srfca.files import replace_file, writable_folder


def new_app(folder: Path) -> list[Path]:
    """Write a Flower app into a new folder.

    Args:
        folder: The folder, whose name becomes the name of the app.

    Returns:
        The files that were written.

    Raises:
        InputError: If the name is not allowed, or the folder is not empty or cannot be written to.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as home:
    ...     print(*(path.name for path in new_app(Path(home) / "my-app")))
    __init__.py client.py pyproject.toml server.py task.py
    """
    name = folder.resolve().name
    require(
        re.fullmatch(r"[a-z][a-z0-9-]*[a-z0-9]", name) is not None,
        f"an app's folder must be named in lower-case letters, digits and dashes, not {name!r}",
    )
    require(not folder.exists() or folder.is_dir(), f"{folder} is a file")
    try:
        is_empty = not folder.exists() or not any(folder.iterdir())
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}") from error
    require(is_empty, f"{folder} is not empty")
    package = name.replace("-", "_")
    spec = find_spec(package)
    require(
        not iskeyword(package) and (spec is None or spec.origin is None),
        f"{package!r} is a keyword or an installed module of Python: choose another name",
    )
    written: list[Path] = []
    template = files("srfca.apps") / "template"
    for source in sorted(template.iterdir(), key=lambda source: source.name):
        text = source.read_text("utf-8").replace("@name@", name).replace("@package@", package)
        file = source.name.removesuffix(".txt")
        path = folder / file if file == "pyproject.toml" else folder / package / file
        replace_file(writable_folder(path.parent) / path.name, text.encode())
        written.append(path)
    return written
