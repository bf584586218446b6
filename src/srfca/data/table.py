"""Columns of tables as arrays: pandas, polars, pyarrow, Hugging Face datasets, dicts of arrays.

narwhals gives one view of all data frames without importing a library that is not there already.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from srfca.errors import InputError, require, unknown

_LISTS = (list, tuple, np.ndarray)
"""What a cell that is an array can be."""
_TIMES = {"M": "dates or times", "m": "time spans"}
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
        require(
            not _holds_tables(source),
            "this holds several tables: give one of them, such as dataset['train']",
        )
        if isinstance(source, Mapping):
            self._arrays = {str(name): _as_array(values) for name, values in source.items()}
            self.names = tuple(self._arrays)
            lengths = {name: len(values) for name, values in self._arrays.items()}
            require(len(set(lengths.values())) <= 1, f"columns have {_listed_lengths(lengths)}")
            self._length = next(iter(lengths.values()), 0)
        else:
            self._frame = _as_frame(source)
            self._native_names = {str(name): name for name in self._frame.columns}
            self.names = tuple(self._native_names)  # pandas also has columns 0, 1, ...
            self._length = len(self._frame)

    def __len__(self) -> int:
        return self._length

    def require_column(self, name: str) -> None:
        """Raise an ``InputError`` if there is no such column."""
        require(isinstance(name, str), f"a column must be named by a string, not {name!r}")
        if name in self.names:
            return
        index = None if self._frame is None else getattr(self._frame.to_native(), "index", None)
        require(
            name not in getattr(index, "names", ()),
            f"{name!r} is the index of the table, not a column: give df.reset_index()",
        )
        raise unknown("column", name, self.names)

    def columns(self, names: Sequence[str], drop_missing: bool = False) -> dict[str, NDArray[Any]]:
        """Return columns as arrays of numbers, truth values or strings, without missing values.

        Args:
            names: Which columns.
            drop_missing: Leave out rows with a missing value in one of these columns, instead of
                raising an error.

        Returns:
            ``[n]`` each, or ``[n, ...]`` for a column of lists of the same lengths. Categorical
            columns are strings.

        Raises:
            InputError: If a column is not there, has missing or infinite values, or holds anything
                else, such as dates. The message names it and says what to do.
        """
        columns = {name: self.raw(name) for name in names}
        missing = {name: _is_missing(column) for name, column in columns.items()}
        counts = {name: int(rows.sum()) for name, rows in missing.items() if rows.any()}
        if counts and drop_missing:
            complete = ~np.any([*missing.values()], axis=0)
            require(bool(complete.any()), f"every row has a missing value: {_listed(counts)}")
            columns = {name: column[complete] for name, column in columns.items()}
        elif counts:
            raise InputError(
                f"missing values in {len(counts)} column{'s' * (len(counts) > 1)} of a table of "
                f"{len(self)} rows: {_listed(counts)}. Fill them in, choose other features, or "
                "leave these rows out with missing='drop' (--missing drop on the command line)"
            )
        return {name: _plain(name, values) for name, values in columns.items()}

    def raw(self, name: str) -> NDArray[Any]:
        """Return a column as an array, in which missing values are None or NaN.

        Raises:
            InputError: If there is no such column, or it has lists of different lengths.
        """
        self.require_column(name)
        values = self._arrays[name] if self._frame is None else _series_values(self._series(name))
        if values.dtype.kind == "O" and len(values) and all(isinstance(v, _LISTS) for v in values):
            return _stack(name, values)
        return values

    def holds_arrays(self, name: str) -> bool:
        """Return whether the cells of a column are lists or arrays."""
        if self._frame is None:
            values = self._arrays[name]
            return values.ndim > 1 or (len(values) > 0 and isinstance(values[0], _LISTS))
        series = self._series(name)
        first = series.drop_nulls().head(1).to_list() if series.dtype == nw.Object else []
        is_list = len(first) > 0 and isinstance(first[0], _LISTS)
        return is_list or series.dtype in (nw.List, nw.Array)

    def _series(self, name: str) -> Any:
        return self._frame.get_column(self._native_names[name])


def as_table(source: Any) -> Table:
    """Return a view of any source; a view already is returned unchanged."""
    return source if isinstance(source, Table) else Table(source)


def is_index(name: str) -> bool:
    """Return whether a column is an index without a name that pandas has written to a file.

    >>> is_index("__index_level_0__"), is_index("index")
    (True, False)
    """
    return re.fullmatch(r"__index_level_\d+__", name) is not None


def _holds_tables(source: Any) -> bool:
    """Return whether a mapping is a Hugging Face ``DatasetDict``, or another one of tables."""
    return isinstance(source, Mapping) and any(
        hasattr(values, "column_names") or hasattr(values, "columns") for values in source.values()
    )


def _listed_lengths(lengths: Mapping[str, int]) -> str:
    """Return the lengths of columns in words, with a few names of each.

    >>> _listed_lengths({"a": 2, "b": 2, "c": 2, "d": 2, "y": 3})
    'different lengths: 2 (a, b, c and 1 more), 3 (y)'
    """
    parts = []
    for length in dict.fromkeys(lengths.values()):
        names = [name for name, other in lengths.items() if other == length]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        parts.append(f"{length} ({', '.join(names[:3])}{more})")
    return f"different lengths: {', '.join(parts)}"


def is_text(values: NDArray[Any]) -> bool:
    """Return whether a column holds strings."""
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


def _series_values(series: Any) -> NDArray[Any]:
    """Return the values of a series; missing ones are None or NaN."""
    if not series.null_count():
        flat = _flattened(series.to_native()) if series.dtype in (nw.List, nw.Array) else None
        values: NDArray[Any] = series.to_numpy() if flat is None else flat
        categorical = series.dtype in (nw.Categorical, nw.Enum)
        return values.astype(np.str_) if categorical else values
    values = series.to_numpy()
    if values.dtype.kind == "O":  # libraries have different objects for missing values
        values = values.copy()
        values[series.is_null().to_numpy()] = None
    return values


def _flattened(native: Any) -> NDArray[Any] | None:
    """Return a pyarrow column of lists of the same lengths as ``[n, ...]``, else None.

    It is faster than to stack the lists one by one.
    """
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is None or not isinstance(native, pyarrow.ChunkedArray):
        return None
    types, column, shape = pyarrow.types, native.combine_chunks(), [len(native)]
    while any(
        is_list(column.type)
        for is_list in (types.is_list, types.is_large_list, types.is_fixed_size_list)
    ):
        lengths = column.value_lengths().unique().to_pylist()
        if column.null_count or len(lengths) != 1:
            return None
        shape.append(lengths[0])
        column = column.flatten()
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return None if column.null_count else values.reshape(shape)


def _is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which entries are None, NaN or NaT; an array is missing if one of its entries is."""
    missing = np.zeros(values.shape, dtype=np.bool_)
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    elif values.dtype.kind in "Mm":
        missing = np.isnat(values)
    elif values.dtype.kind == "O":
        missing = np.array([_is_nothing(value) for value in values], dtype=np.bool_)
    return missing.any(tuple(range(1, missing.ndim))).reshape(-1)


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name!r} ({count})" for name, count in counts.items())


def _plain(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return a column as numbers, truth values or strings.

    Raises:
        InputError: If it holds anything else.
    """
    if values.dtype.kind == "O":
        values = _from_objects(name, values)
    kind = values.dtype.kind
    if kind in _TIMES:
        raise InputError(
            f"column {name!r} holds {_TIMES[kind]} ({values.dtype}), which are not numbers: "
            "convert it to numbers (an hour, a weekday, days since a date), or leave it out"
        )
    require(kind in "biufU", f"column {name!r} holds {values.dtype}, not numbers or strings")
    if kind == "f":
        infinite = int((~np.isfinite(values)).sum())
        require(
            not infinite,
            f"column {name!r} has {infinite} infinite value{'s' * (infinite > 1)}: correct them",
        )
        wide = values.dtype.itemsize > 8
        return values.astype(np.float64 if wide else values.dtype.newbyteorder("="), copy=False)
    if kind in "iu" and values.dtype != np.uint8:
        return values.astype(np.int64, copy=False)
    return values


def _from_objects(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return a column of Python objects of one kind as an array of a type."""
    if all(isinstance(value, str) for value in values):
        return values.astype(np.str_)
    if all(isinstance(value, bool | np.bool_) for value in values):
        return values.astype(np.bool_)
    if all(isinstance(value, int | float | Decimal | np.number) for value in values):
        return values.astype(np.float64)
    if all(isinstance(value, _LISTS) for value in values):  # rows with missing ones were dropped
        return _stack(name, values)
    types = sorted({type(value).__name__ for value in values})
    raise InputError(
        f"column {name!r} holds values of type {', '.join(types)}: convert all "
        "of them to numbers or strings, or leave it out"
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
    incomplete = stacked.dtype.kind == "O" or _is_missing(stacked).any()
    require(not incomplete, f"column {name!r} has arrays with missing values: fill them in")
    return stacked
