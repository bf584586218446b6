"""Shards that workers read from files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srfca.data.client_data import ClientData
from srfca.data.client_files import load
from srfca.errors import require
from srfca.ray.shards import MakeData

SUFFIXES = (".parquet", ".csv", ".npz")


@dataclass(frozen=True)
class ReadFile:
    """Reads the clients of one file.

    Args:
        path: The file, where the workers find it.
        options: Options of ``srfca.data.load``.
    """

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> ClientData:
        """Return the clients of the file.

        Raises:
            InputError: If the file is damaged, or not as the options say.
        """
        return load(self.path, **self.options)


def files_in(folder: str | Path, **options: Any) -> list[MakeData]:
    """Return a shard for each file of a folder, in alphabetical order, for ``RayFederation``.

    Each file has all rows of its clients, and a client column. Every worker must find the folder
    under this name. Numbers are not standardized, since no worker sees all rows: bring them to a
    common scale before. Shards whose categories or classes differ are refused.

    Args:
        folder: With .parquet, .csv or .npz files.
        **options: Options of ``srfca.data.load``: ``client``, ``target``, ``features``, ...

    Returns:
        A function for each file, to be called on a worker.

    Raises:
        InputError: If there is no such folder, no file in it, or standardization is asked for.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> with TemporaryDirectory() as folder:
        ...     for number in range(2):
        ...         rows = {"x": np.ones((4, 3)), "y": [0, 1, 0, 1], "client": [2 * number] * 4}
        ...         np.savez(f"{folder}/{number}.npz", **rows)
        ...     [read().client_ids for read in files_in(folder)]
        [('0',), ('2',)]
    """
    path = Path(folder).absolute()
    require(path.is_dir(), f"there is no folder {path}")
    require(
        not options.get("standardize"),
        "standardize needs all rows in one place, but each worker has some: leave it out",
    )
    files = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES)
    require(bool(files), f"{path}: has no {', '.join(SUFFIXES)} file in it")
    return [ReadFile(str(file), options | {"standardize": False}) for file in files]
