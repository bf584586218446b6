"""The schema of a table, inferred from its columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.data.schema import Dtype, Label, Schema, TargetKind
from srfca.data.table import Table, is_text
from srfca.errors import InputError, require, unknown
from srfca.parameters import choices

MAX_CATEGORIES = 100
"""Categories of a string feature; more are no categories, but names or text."""
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?(?!\d)|\d\d?([./])\d\d?\1\d{4}(?!\d)")
"""A string that begins with a date: 2024-01-31, 31.1.2024 or 1/31/2024."""
FEW = 20
"""As many different whole numbers may be classes, or values: floats are asked about."""


def infer_schema(
    table: Table,
    features: Sequence[str],
    client: str,
    target: str,
    target_kind: TargetKind | None,
    standardize: bool | None,
    train: NDArray[np.bool_],
) -> Schema:
    """Return the schema of a table.

    Args:
        table: The table.
        features: The feature columns, in the order of the inputs.
        client: The client column.
        target: The target column.
        target_kind: Whether targets are classes or values; None decides by the column, and raises
            an error if both make sense.
        standardize: Whether inputs, and targets that are values, get mean 0 and standard deviation
            1 over the training rows; None does so unless the only feature is a column of arrays.
        train: ``[n]`` which rows are training samples.

    Raises:
        InputError: If a column cannot be used, or it is unclear what the target is.
    """
    require(len(features) > 0, "there are no features: no column is left beside client and target")
    columns = table.columns(features)
    arrays = [name for name, column in columns.items() if column.ndim > 1]
    require(
        not arrays or len(features) == 1,
        f"column {arrays[0] if arrays else ''!r} holds arrays, so it must be the only feature, but "
        f"there are {len(features)}: choose it or the others with features",
    )
    kind, classes = infer_target(target, table.columns([target])[target], target_kind)
    schema = Schema(tuple(features), client, target, kind, classes)
    if arrays:
        [column] = columns.values()
        require(
            not is_text(column), f"column {arrays[0]!r} holds arrays of strings, not of numbers"
        )
        schema = replace(schema, shape=column.shape[1:], dtype=array_dtype(column))
    else:
        texts = {name: column for name, column in columns.items() if is_text(column)}
        categories = {name: _categories(name, column) for name, column in texts.items()}
        schema = replace(schema, categories=categories)
    wanted = not arrays if standardize is None else standardize
    return _standardized(schema, table, columns, train) if wanted else schema


def infer_target(
    name: str, column: NDArray[Any], kind: TargetKind | None
) -> tuple[TargetKind, tuple[Label, ...]]:
    """Return whether targets are classes or values, and the classes in the order of their labels.

    Strings and truth values are classes. Floats are values, unless they are few whole numbers.
    Whole numbers are classes, unless they are many with gaps. What remains is unclear.

    Args:
        name: Name of the column, for error messages.
        column: ``[n, ...]`` targets.
        kind: Classes or values, if that is known.

    Raises:
        InputError: If it is unclear.

    >>> infer_target("ill", np.array(["no", "yes", "no"]), None)
    ('classes', ('no', 'yes'))
    """
    if kind is not None and kind not in choices(TargetKind):
        raise unknown("target_kind", kind, choices(TargetKind))
    require(
        kind != "values" or not is_text(column),
        f"column {name!r} holds strings, which are classes, not values",
    )
    different: list[Any] = np.unique(column).tolist()
    require(
        len(different) > 1,
        f"column {name!r} has the same class or value in every row, so there is nothing to predict",
    )
    if kind is None:
        kind = _clear_kind(column, different)
    if kind is None:
        listed = ", ".join(str(value) for value in different[:3])
        listed += ", ..." if len(different) > 3 else ""
        raise InputError(
            f"column {name!r} has {len(different)} different whole numbers ({listed}; type "
            f"{column.dtype}), which may be classes or values: say which, by "
            "target_kind='classes' or target_kind='values' (--target-kind on the command line)"
        )
    if kind == "values":
        return kind, ()
    if column.dtype.kind == "f" and all(value.is_integer() for value in different):
        different = [int(value) for value in different]
    return kind, tuple(different)


def array_dtype(column: NDArray[Any]) -> Dtype:
    """Return the type of inputs from a column of arrays."""
    if column.dtype.kind == "f":
        return "float64" if column.dtype.itemsize > 4 else "float32"
    return "uint8" if column.dtype == np.uint8 else "int64"


def _clear_kind(column: NDArray[Any], different: list[Any]) -> TargetKind | None:
    """Return what targets are, None if both make sense."""
    few = len(different) <= FEW
    match column.dtype.kind:
        case "f" if column.ndim > 1 or not few or any(not v.is_integer() for v in different):
            return "values"
        case "f":
            return None
        case "i" | "u":
            numbered = different == list(range(len(different)))
            return "classes" if few or numbered else None
        case _:
            return "classes"


def _categories(name: str, column: NDArray[Any]) -> tuple[str, ...]:
    """Return the different strings of a feature."""
    values = np.unique(column).tolist()
    require(
        not all(_DATE.match(value) for value in values),
        f"column {name!r} holds dates, such as {values[0]!r}, which are not numbers: convert it to "
        "numbers (an hour, a weekday, days since a date), or leave it out by naming the features "
        "(features=[...], --features on the command line)",
    )
    require(
        len(values) <= MAX_CATEGORIES,
        f"column {name!r} has {len(values)} different strings, such as {values[0]!r}; a feature "
        f"can have at most {MAX_CATEGORIES}: leave it out by naming the features (features=[...], "
        "--features on the command line), or convert it to numbers",
    )
    return tuple(values)


def _standardized(
    schema: Schema, table: Table, columns: dict[str, NDArray[Any]], train: NDArray[np.bool_]
) -> Schema:
    """Return the schema with mean and scale of inputs, and of targets that are values."""
    if schema.shape is not None:
        schema = replace(schema, dtype="float32")
    inputs = replace(schema, dtype="float64").encode(columns).flatten(1).numpy()[train]
    mean, scale = _moments(inputs)
    numbers: list[bool] = []  # truth values and categories stay 0 and 1
    for name in schema.features:
        categories = schema.categories.get(name)
        is_number = categories is None and columns[name].dtype.kind != "b"
        numbers += [is_number] * len(categories or [name])
    if schema.shape is None:
        mean, scale = np.where(numbers, mean, 0.0), np.where(numbers, scale, 1.0)
    schema = replace(schema, mean=tuple(mean.tolist()), scale=tuple(scale.tolist()))
    if schema.target_kind == "classes":
        return schema
    assert schema.target is not None
    targets = table.columns([schema.target])[schema.target].astype(np.float64)[train]
    return replace(
        schema, target_mean=float(targets.mean()), target_scale=float(targets.std()) or 1.0
    )


def _moments(inputs: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of each input; 1 for an input that is constant."""
    mean, scale = inputs.mean(0), inputs.std(0)
    return mean, np.where(scale > 1e-12 * np.maximum(1.0, np.abs(mean)), scale, 1.0)
