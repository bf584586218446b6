"""Columns of tables as arrays: pandas, polars, pyarrow, Hugging Face datasets, dicts of arrays.

narwhals gives one view of all data frames without importing a library that is not there already.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from srfca.errors import InputError, require, unknown

_KINDS = {"M": "dates or times", "m": "time spans", "c": "complex numbers", "V": "records"}
"""Kinds of numpy types that are refused, in words."""


class Table:
    """A view of a table whose columns are read as numpy arrays.

    Args:
        source: A data frame of pandas, polars or another library that narwhals supports, a pyarrow
            table, a Hugging Face ``Dataset``, or a mapping from names to arrays.

    Raises:
        InputError: If it is something else, two columns have the same name, or columns of a mapping
            have different lengths.

    Examples:
        >>> table = Table({"age": [31, 45], "city": ["Ulm", "Bonn"]})
        >>> len(table), table.names
        (2, ('age', 'city'))
        >>> table.columns(["city"])["city"].tolist()
        ['Ulm', 'Bonn']
    """

    def __init__(self, source: Any) -> None:
        self._frame: Any = None
        self._arrays: Mapping[str, NDArray[Any]] = {}
        if isinstance(source, Mapping):
            self._arrays = {str(name): _as_array(values) for name, values in source.items()}
            self.names = tuple(self._arrays)
            lengths = {name: len(values) for name, values in self._arrays.items()}
            require(len(set(lengths.values())) <= 1, f"columns have different lengths: {lengths}")
            self._length = next(iter(lengths.values()), 0)
        else:
            self._frame = _as_frame(source)
            self.names = tuple(str(name) for name in self._frame.columns)
            self._length = len(self._frame)

    def __len__(self) -> int:
        return self._length

    def require_column(self, name: str) -> None:
        """Raise an ``InputError`` if there is no such column."""
        if name in self.names:
            return
        index = None if self._frame is None else getattr(self._frame.to_native(), "index", None)
        require(
            name not in getattr(index, "names", ()),
            f"{name!r} is the index of the table, not a column: give df.reset_index()",
        )
        raise unknown("column", name, self.names)

    def columns(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return columns as arrays of numbers, truth values or strings, without missing values.

        Args:
            names: Which columns.

        Returns:
            ``[n]`` each, or ``[n, ...]`` for a column of lists of the same lengths. Categorical
            columns are strings.

        Raises:
            InputError: If a column is not there, has missing or infinite values, or holds anything
                else, such as dates. The message names it and says what to do.
        """
        for name in names:
            self.require_column(name)
        read = {name: self._read(name) for name in names}
        missing = {name: count for name, (_, count) in read.items() if count}
        if missing:
            counts = ", ".join(f"{name!r} ({count})" for name, count in missing.items())
            raise InputError(
                f"missing values in {len(missing)} column{'s' * (len(missing) > 1)} of a table of "
                f"{len(self)} rows: {counts}. Fill them in, drop these rows (of a data frame: "
                f"df.dropna(subset={[*missing]})), or leave a feature out"
            )
        return {name: _plain(name, values) for name, (values, _) in read.items()}

    def _read(self, name: str) -> tuple[NDArray[Any], int]:
        """Return a column and the number of its missing values."""
        if self._frame is None:
            values = self._arrays[name]
            return values, _count_missing(values)
        series = self._frame[name]
        values = series.to_numpy()
        missing = max(int(series.null_count()), _count_missing(values))
        if not missing and series.dtype in (nw.Categorical, nw.Enum):
            values = values.astype(np.str_)
        return values, missing


def is_text(values: NDArray[Any]) -> bool:
    """Tell whether a column holds strings."""
    return values.dtype.kind == "U"


def _as_frame(source: Any) -> Any:
    """Return a data frame of narwhals."""
    datasets = sys.modules.get("datasets")  # imported already if the source is one of its tables
    if datasets is not None and isinstance(source, datasets.Dataset):
        source = _arrow_table(source, datasets.ClassLabel)
    try:
        return nw.from_native(source, eager_only=True)
    except TypeError as error:
        if isinstance(source, str):
            hint = "srfca.data.load reads files"
        elif hasattr(source, "collect"):
            hint = "call its collect() first"
        else:
            hint = "give a data frame (pandas, polars), a pyarrow table, or a dict of arrays"
        raise InputError(f"a {type(source).__name__} is not a table: {hint}") from error
    except Exception as error:  # narwhals' own errors, such as for two columns of one name
        raise InputError(f"the table cannot be read: {error}") from error


def _arrow_table(dataset: Any, class_label: type) -> Any:
    """Return a Hugging Face ``Dataset`` as a pyarrow table, with the names of classes."""
    table = dataset.with_format("arrow")[:]
    for name, feature in dataset.features.items():
        if isinstance(feature, class_label):
            names = dict(enumerate(feature.names))  # type: ignore[attr-defined]
            labels = [names.get(label) for label in table[name].to_pylist()]
            table = table.set_column(table.column_names.index(name), name, [labels])
    return table


def _as_array(values: Any) -> NDArray[Any]:
    """Return a column of a mapping as an array."""
    if isinstance(values, np.ma.MaskedArray):
        return np.array(values.tolist(), dtype=object)  # None where it is masked
    if hasattr(values, "detach"):  # a tensor
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        array = np.empty(len(values), dtype=object)
        array[:] = list(values)
    require(array.ndim > 0, "each column of a table must have an entry for each row")
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
        given = list(values)  # numpy turns ["a", None] into objects, but ["a", 1] into strings
        if not all(isinstance(value, str) for value in given):
            array = np.array(given, dtype=object)
    return array


def _count_missing(values: NDArray[Any]) -> int:
    """Return how many entries are None, NaN or NaT."""
    if values.dtype.kind == "f":
        return int(np.isnan(values).reshape(len(values), -1).any(1).sum()) if len(values) else 0
    if values.dtype.kind in "Mm":
        return int(np.isnat(values).sum())
    if values.dtype.kind == "O":
        return sum(
            value is None or (isinstance(value, float) and value != value) for value in values
        )
    return 0


def _plain(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return a column as numbers, truth values or strings.

    Raises:
        InputError: If it holds anything else.
    """
    if values.dtype.kind == "O":
        values = _from_objects(name, values)
    kind = values.dtype.kind
    if kind in _KINDS:
        raise InputError(
            f"column {name!r} holds {_KINDS[kind]} ({values.dtype}), which are not numbers: make "
            "numbers of it (an hour, a weekday, days since a date), or leave it out"
        )
    require(kind in "biufU", f"column {name!r} holds {values.dtype}, not numbers or strings")
    if kind == "f":
        infinite = int((~np.isfinite(values)).sum())
        require(not infinite, f"column {name!r} has {infinite} infinite values: correct them")
        wide = values.dtype.itemsize > 8
        return values.astype(np.float64 if wide else values.dtype.newbyteorder("="), copy=False)
    return values


def _from_objects(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return a column of Python objects of one kind as an array of a type."""
    if all(isinstance(value, str) for value in values):
        return values.astype(np.str_)
    if all(isinstance(value, bool | np.bool_) for value in values):
        return values.astype(np.bool_)
    if all(isinstance(value, int | float | Decimal | np.number) for value in values):
        return values.astype(np.float64)
    if all(isinstance(value, list | tuple | np.ndarray) for value in values):
        return _stack(name, values)
    types = sorted({type(value).__name__ for value in values})
    raise InputError(
        f"column {name!r} holds values of type {', '.join(types)}: make numbers or strings of all "
        "of them, or leave it out"
    )


def _stack(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return a column of lists of the same lengths as ``[n, ...]``."""
    try:
        stacked = np.stack([np.stack(list(value)) for value in values])
    except ValueError:
        lengths = sorted({len(value) for value in values})
        raise InputError(
            f"column {name!r} has lists of {lengths[0]} to {lengths[-1]} entries, but they must "
            "all have the same length"
        ) from None
    return stacked
