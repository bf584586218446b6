"""A file as a table, and the purposes of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from srfca.data.columns import read_columns
from srfca.data.table import Table
from srfca.errors import InputError, require, unknown


class Purposes(TypedDict):
    """Columns by their purpose, as ``ClientData.from_frame`` takes them."""

    client: str
    target: str
    features: Sequence[str] | None
    test: str | float | None
    cluster: str | None


@dataclass(frozen=True)
class Names:
    """The names of columns that a user gave, None where it is the usual one.

    Args:
        client: The client column, usually "client".
        target: The target column, usually "y".
        features: The features, usually "x" if it is an array, and all other columns if not.
        test: The column of test rows, usually "split", or the fraction to draw.
        cluster: The column of true clusters, usually "cluster".
    """

    client: str | None = None
    target: str | None = None
    features: Sequence[str] | None = None
    test: str | float | None = None
    cluster: str | None = None

    @property
    def client_column(self) -> str:
        """The client column."""
        return "client" if self.client is None else self.client

    @property
    def target_column(self) -> str:
        """The target column."""
        return "y" if self.target is None else self.target

    @property
    def test_column(self) -> str:
        """The column of test rows, which a file may lack."""
        return self.test if isinstance(self.test, str) else "split"

    @property
    def cluster_column(self) -> str:
        """The column of true clusters, which a file may lack."""
        return "cluster" if self.cluster is None else self.cluster

    @property
    def special(self) -> list[str]:
        """All columns that are no features."""
        return [self.client_column, self.target_column, self.test_column, self.cluster_column]

    def read(self, path: Path) -> Any:
        """Read the columns of a file, also those of an index that have a purpose."""
        return read_columns(path, [*self.special, *(self.features or ())])

    def features_of(self, path: Path, table: Table) -> list[str]:
        """Return the features: those that were named, else x if it is an array, else all columns.

        Raises:
            InputError: If an .npz file has no x, or there are columns beside an array x.
        """
        if self.features is not None:
            return [self.features] if isinstance(self.features, str) else list(self.features)
        others = [name for name in table.names if name not in self.special]
        is_npz = path.suffix.lower() == ".npz"
        listed = ", ".join(table.names) or "nothing"
        require(not is_npz or "x" in others, f"has no x, but {listed}")
        if "x" not in others or not table.holds_arrays("x"):
            return others
        for name in others:
            if name != "x":
                raise unknown("column", name, ["x", *self.special])
        return ["x"]

    def purposes(self, path: Path, table: Table) -> Purposes:
        """Return the columns of a table by their purpose.

        Raises:
            InputError: If there is no client or target column.
        """
        for purpose, given, name in (
            ("client", self.client, self.client_column),
            ("target", self.target, self.target_column),
        ):
            require(
                given is not None or name in table.names,
                f"has no column {name!r}, but {', '.join(table.names) or 'nothing'}: name the "
                f"{purpose} column with {purpose}=... (--{purpose} on the command line)",
            )
        return {
            "client": self.client_column,
            "target": self.target_column,
            "features": self.features_of(path, table),
            "test": self._test(table),
            "cluster": self.cluster or ("cluster" if "cluster" in table.names else None),
        }

    def _test(self, table: Table) -> str | float | None:
        has_column = self.test_column in table.names
        if self.test is None:
            return self.test_column if has_column else None
        require(
            isinstance(self.test, str) or not has_column,
            f"has a column {self.test_column!r} of test rows, but test={self.test} asks to draw "
            "them: give one of the two",
        )
        return self.test


def read_file(path: Path, names: Names) -> tuple[Table, Purposes]:
    """Read a file with a client column.

    Args:
        path: The file.
        names: The names of its columns.

    Returns:
        The table, and its columns by purpose.

    Raises:
        InputError: If it cannot be read, or a column is not there. The message names the file.
    """
    source = names.read(path)
    with prefixed(path):
        table = file_table(path, source)
        return table, names.purposes(path, table)


def file_table(path: Path, source: Any) -> Table:
    """Return the columns of a file as a table; x of an .npz file is always an array."""
    if path.suffix.lower() == ".npz" and "x" in source:
        require(source["x"].ndim > 0, "x is one number, not one for each sample")
        if source["x"].ndim == 1:
            source = source | {"x": source["x"][:, None]}
    return Table(source)


@contextmanager
def prefixed(path: Path) -> Iterator[None]:
    """Put the path before the message of an error."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
