"""How a table becomes tensors, and predictions become labels again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from srfca.data.table import as_table, is_text
from srfca.errors import InputError, require, unknown

TargetKind = Literal["classes", "values"]
Dtype = Literal["float32", "float64", "int64", "uint8"]
Label = str | int | float | bool
"""The name of a class."""


@dataclass(frozen=True)
class Schema:
    """How the columns of a table become inputs and targets of a model.

    A number or truth value is one input. A string becomes an input for each of its categories, 1
    for the one that it is and 0 for the others. A string that is no category is an error: a model
    that never saw it has nothing to say about it.

    Args:
        features: The feature columns, in the order of the inputs.
        client: The column that names the client of each row, if there is one.
        target: The column that is predicted.
        target_kind: Whether targets are classes or values.
        classes: The classes in the order of their labels 0, 1, ..., if targets are classes.
        categories: The categories of each feature that is a string, in the order of its inputs.
        mean: ``[inputs]`` what is subtracted from each input; empty if inputs are not standardized.
        scale: ``[inputs]`` what each input is divided by then.
        target_mean: What is subtracted from a target that is a value.
        target_scale: What it is divided by then.
        shape: The shape of a sample, if the only feature is a column of lists or an array.
        dtype: The type of inputs. Whole numbers are kept in arrays alone, for embeddings.

    Examples:
        >>> schema = Schema(
        ...     features=("age", "city"), target="ill", target_kind="classes",
        ...     classes=("no", "yes"), categories={"city": ("Bonn", "Ulm")},
        ...     mean=(40.0, 0.0, 0.0), scale=(10.0, 1.0, 1.0),
        ... )
        >>> schema.inputs
        ('age', 'city=Bonn', 'city=Ulm')
        >>> schema.encode({"city": ["Ulm", "Bonn"], "age": [50, 30]})
        tensor([[ 1.,  0.,  1.],
                [-1.,  1.,  0.]])
        >>> schema.decode([1, 0]).tolist()
        ['yes', 'no']
        >>> Schema.from_json(schema.to_json()) == schema
        True
    """

    features: tuple[str, ...]
    client: str | None = None
    target: str | None = None
    target_kind: TargetKind = "values"
    classes: tuple[Label, ...] = ()
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    target_mean: float = 0.0
    target_scale: float = 1.0
    shape: tuple[int, ...] | None = None
    dtype: Dtype = "float32"

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs: of features, and ``feature=category``."""
        names: list[str] = []
        for name in self.features:
            categories = self.categories.get(name)
            names += [name] if categories is None else [f"{name}={value}" for value in categories]
        return tuple(names)

    def encode(self, table: Any) -> Tensor:
        """Return the inputs of a table's rows: ``[n, inputs]``, or ``[n, *shape]``.

        Args:
            table: A data frame, a pyarrow table or a dict of arrays. Columns that are no features
                are not read.

        Raises:
            InputError: If a feature is missing, has missing values, has another type than in
                training, or has a category that is not known.
        """
        columns = as_table(table).columns(self.features)
        inputs: NDArray[Any]
        if self.shape is None:
            parts = [self._encode_feature(name, column) for name, column in columns.items()]
            inputs = np.column_stack(parts)
        else:
            inputs = self._encode_array(columns[self.features[0]])
        if self.mean:
            flat = inputs.reshape(len(inputs), len(self.mean))
            inputs = ((flat - np.array(self.mean)) / np.array(self.scale)).reshape(inputs.shape)
        return torch.from_numpy(np.require(inputs, requirements=["C", "W"])).to(
            getattr(torch, self.dtype)
        )

    def encode_targets(self, table: Any) -> Tensor:
        """Return the targets of a table's rows: ``[n]`` labels, or ``[n]`` values.

        Args:
            table: A data frame, a pyarrow table or a dict of arrays.

        Raises:
            InputError: If the schema has no target, the column is missing or has missing values, or
                there is a class that is not known.
        """
        if self.target is None:
            raise InputError("the schema has no target column")
        column = as_table(table).columns([self.target])[self.target]
        if column.dtype.kind != "f" and column.shape[1:] == (1,):
            column = column[:, 0]
        if self.target_kind == "classes":
            return torch.from_numpy(self._labels(column))
        require(column.dtype.kind in "biuf", _not_numbers(self.target, column))
        values = (column.astype(np.float64) - self.target_mean) / self.target_scale
        return torch.from_numpy(values).float()

    def decode(self, predictions: ArrayLike | Tensor) -> NDArray[Any]:
        """Return labels as classes, or predicted values in the units of the target.

        Args:
            predictions: ``[...]`` labels 0, 1, ..., or values.

        Returns:
            ``[...]``, classes or values.

        Raises:
            InputError: If there is no class with such a label.
        """
        if isinstance(predictions, Tensor):
            predictions = predictions.detach().cpu().numpy()
        values = np.asarray(predictions)
        if self.target_kind == "values":
            return values * self.target_scale + self.target_mean
        if not self.classes:
            return values
        require(
            values.size == 0 or (values.min() >= 0 and values.max() < len(self.classes)),
            f"labels must be from 0 to {len(self.classes) - 1}, one for each class",
        )
        decoded: NDArray[Any] = np.array(self.classes)[values]
        return decoded

    def to_json(self) -> dict[str, Any]:
        """Return the schema as a plain dict, ready for JSON."""
        content = asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in content.items()} | {
            "categories": {name: list(values) for name, values in self.categories.items()}
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Schema:
        """Return the schema that ``to_json`` wrote.

        Args:
            content: What ``to_json`` returned.

        Returns:
            An equal schema.

        Raises:
            InputError: If it is something else.
        """
        names = {parameter.name for parameter in fields(cls)}
        for name in content:
            if name not in names:
                raise unknown("part of a schema", name, names)
        try:
            restored: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in content.items()
            }
            categories = content.get("categories", {}).items()
            restored["categories"] = {name: tuple(values) for name, values in categories}
            return cls(**restored)
        except (TypeError, AttributeError) as error:
            raise InputError(f"this is not a schema: {error}") from error

    def _encode_feature(self, name: str, column: NDArray[Any]) -> NDArray[np.float64]:
        """Return the inputs of one feature, ``[n, inputs of the feature]``."""
        require(
            column.ndim == 1,
            f"column {name!r} holds arrays of shape {column.shape[1:]}, not one value in each row",
        )
        categories = self.categories.get(name)
        if categories is None:
            require(not is_text(column), _not_numbers(name, column))
            return column.astype(np.float64)[:, None]
        values = column if is_text(column) else column.astype(np.str_)
        new = sorted(set(values.tolist()) - set(categories))
        if new:
            raise InputError(
                f"column {name!r} has {len(new)} values that are no category of the training data: "
                f"{_listed(new)}; known are {_listed(categories)}. Train with them, or leave these "
                "rows out"
            )
        one_hot: NDArray[np.float64] = (values[:, None] == np.array(categories)).astype(np.float64)
        return one_hot

    def _encode_array(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return the samples of a column of arrays, ``[n, *shape]``."""
        require(not is_text(column), _not_numbers(self.features[0], column))
        samples = column[:, None] if column.ndim == 1 and self.shape == (1,) else column
        require(
            samples.shape[1:] == self.shape,
            f"{self.features[0]!r} has samples of shape {samples.shape[1:]}, but those of the "
            f"training data is of shape {self.shape}",
        )
        return samples

    def _labels(self, column: NDArray[Any]) -> NDArray[np.int64]:
        """Return the labels of classes, ``[n]``."""
        order = {value: label for label, value in enumerate(self.classes)}
        values, inverse = np.unique(column, return_inverse=True)
        new = [value for value in values.tolist() if value not in order]
        if new:
            raise InputError(
                f"column {self.target!r} has {len(new)} values that are no class of the training "
                f"data: {_listed(new)}; known are {_listed(self.classes)}"
            )
        labels = np.array([order[value] for value in values.tolist()], dtype=np.int64)
        return labels[inverse].reshape(column.shape)


def _not_numbers(name: str, column: NDArray[Any]) -> str:
    first = "" if not len(column) else f", such as {column.flat[0].item()!r}"
    return f"column {name!r} must be numbers, but holds strings{first}"


def _listed(values: Any, most: int = 5) -> str:
    """Return some values, separated by commas."""
    shown = ", ".join(repr(value) for value in list(values)[:most])
    return shown if len(values) <= most else f"{shown}, ..."
