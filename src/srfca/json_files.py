"""JSON files with a format number and a checksum, so that a damaged file is never believed.

The checksum covers the name of the file and all values, not the layout: a file that was only
indented differently is the same file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from srfca.errors import InputError, require
from srfca.files import replace_file

CHECKSUM, FORMAT = "checksum", "format"


def write_json(path: Path, content: Mapping[str, Any], format: int) -> str:
    """Write an object atomically, with its checksum, and return the checksum.

    Args:
        path: The file.
        content: The object, ready for JSON.
        format: Number of the layout; it rises when the layout changes.

    Raises:
        InputError: If the file cannot be written.
    """
    plain = json.loads(json.dumps({FORMAT: format, **content}))
    checksum = _checksum(path.name, plain)
    text = json.dumps({FORMAT: format, CHECKSUM: checksum, **content}, indent=1)
    replace_file(path, f"{text}\n".encode())
    return checksum


def read_json(path: Path, format: int, remedy: str) -> dict[str, Any]:
    """Return what ``write_json`` wrote, without format and checksum.

    Args:
        path: The file.
        format: The number of the layout that is understood.
        remedy: What to do if the file is damaged, for the error message.

    Raises:
        FileNotFoundError: If there is no such file.
        InputError: If it is damaged, was edited, or has another format.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, str(error), remedy) from error
    if not isinstance(content, dict):
        raise damaged(path, "it holds no object", remedy)
    stored = content.pop(FORMAT, None)
    if type(stored) is not int:
        raise damaged(path, "it has no format number", remedy)
    require(
        stored == format,
        f"{path}: format {stored} is not the {format} that this version reads: {remedy}",
    )
    checksum = content.pop(CHECKSUM, None)
    if checksum != _checksum(path.name, {FORMAT: format, **content}):
        raise damaged(path, "its checksum does not match, or it was edited", remedy)
    return content


def damaged(path: Path, reason: str, remedy: str) -> InputError:
    """Return the error for a file that cannot be believed."""
    return InputError(f"{path} is damaged: {reason}: {remedy}")


def _checksum(name: str, content: Mapping[str, Any]) -> str:
    text = json.dumps([name, content], sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()
