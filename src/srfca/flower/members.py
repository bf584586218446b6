"""Who the clients of a run are, on disk: a server that is started again goes on with them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from srfca.errors import InputError
from srfca.files import replace_file
from srfca.flower.post import Member

CLIENTS = "clients.json"


def write_members(folder: Path, members: list[Member]) -> None:
    """Write down who the clients are, for a run that goes on with them."""
    text = json.dumps([asdict(member) for member in members], indent=1) + "\n"
    replace_file(folder / CLIENTS, text.encode())


def read_members(folder: Path) -> list[Member]:
    """What ``write_members`` wrote, nobody if it did not."""
    try:
        return [Member(**each) for each in json.loads((folder / CLIENTS).read_bytes())]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{folder / CLIENTS} is damaged: {error}") from error
