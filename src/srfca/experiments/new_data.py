"""New data for a saved run: rows of clients that the run knows, and of newcomers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.data.columns import read_columns
from srfca.data.file_tables import file_table, prefixed
from srfca.data.grouping import Owners, group
from srfca.data.schema import Schema
from srfca.data.table import Table
from srfca.engine import Simulation
from srfca.errors import InputError, require
from srfca.methods import Result
from srfca.methods._common.assignment import Assignment
from srfca.models.prediction import outputs_of
from srfca.models.signature import Signature, dtype_named


@dataclass(frozen=True, eq=False)
class NewData:
    """Rows of a file, each of a client.

    Args:
        path: The file, for error messages.
        owners: Whose rows they are.
        x: ``[n, ...]`` inputs.
        table: All columns.
        target: The target column, which the table may lack.
        schema: How the columns of the run became tensors, if that is known.
    """

    path: Path
    owners: Owners
    x: Tensor
    table: Table
    target: str
    schema: Schema | None

    @property
    def client_ids(self) -> tuple[str, ...]:
        """The clients, in the order of their first rows."""
        return self.owners.client_ids

    @cached_property
    def rows(self) -> dict[str, NDArray[np.int64]]:
        """The rows of each client."""
        order = np.argsort(self.owners.client, kind="stable")
        ends = np.bincount(self.owners.client, minlength=len(self.client_ids)).cumsum()[:-1]
        return dict(zip(self.client_ids, np.split(order, ends), strict=True))

    def labeled_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of some rows whose target is not missing."""
        if self.target not in self.table.names:
            return rows[:0]
        values = self.table.raw(self.target)[rows]
        return rows[[_has_value(value) for value in values]]

    def targets(self, rows: NDArray[np.int64]) -> Tensor:
        """Return the targets of some rows: ``[r, ...]``.

        Raises:
            InputError: If one is of a class that the run does not know.
        """
        with prefixed(self.path):
            chosen = Table({self.target: self.table.raw(self.target)[rows]})
            if self.schema is not None:
                return self.schema.encode_targets(chosen)
            return torch.as_tensor(chosen.columns([self.target])[self.target])


@dataclass(frozen=True, eq=False)
class Newcomers:
    """Newcomers, and the clusters that they were assigned to.

    Args:
        client_ids: The newcomers.
        assignment: Their clusters.
        labels: Whether they had labels; otherwise they were placed by their inputs.
    """

    client_ids: tuple[str, ...]
    assignment: Assignment
    labels: bool


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for rows.

    Args:
        client: ``[n]`` the name of each row's client.
        values: ``[n, ...]`` classes or values, None for rows of clients without a model.
        probability: ``[n]`` of the predicted class, NaN without a model; None if the model was not
            trained with cross entropy, or predicts several classes for a sample.
    """

    client: NDArray[np.str_]
    values: NDArray[Any]
    probability: NDArray[np.float64] | None


def read_new_data(path: Path, result: Result) -> NewData:
    """Read new data for a result.

    Args:
        path: A .csv, .parquet or .npz file with the columns of the run's data; for a result without
            a schema, an array ``x`` and a column ``client``.
        result: The result.

    Raises:
        InputError: If the file cannot be read, or lacks a column.
    """
    require(path.is_file(), f"there is no file {path}")
    schema = result.schema
    features = ("x",) if schema is None else schema.features
    client = "client" if schema is None or schema.client is None else schema.client
    target = "y" if schema is None or schema.target is None else schema.target
    source = read_columns(path, [client, target, *features])
    with prefixed(path):
        table = file_table(path, source)
        owners = Owners.from_column(client, table.columns([client])[client])
        encoded = table.columns(["x"])["x"] if schema is None else schema.encode(table)
    return NewData(path, owners, torch.as_tensor(encoded), table, target, schema)


def unplaced_clients(result: Result, data: NewData) -> list[str]:
    """Return the clients of new data that the run has no model for."""
    has_models = result.individual_models is not None or result.mixture_weights is not None
    placed = {
        client_id
        for client_id, label in zip(result.client_ids, result.labels.tolist(), strict=True)
        if label >= 0 or has_models
    }
    return [client_id for client_id in data.client_ids if client_id not in placed]


def has_one_model(result: Result) -> bool:
    """Return whether all clients share one model, which newcomers can use unassigned."""
    individual = (result.individual_models, result.mixture_weights, result.personal)
    return not result.clustered and len(result.models) == 1 and individual == (None, None, None)


def assign_newcomers(result: Result, data: NewData, clients: Sequence[str]) -> list[Newcomers]:
    """Assign clients to clusters: with labels where they have some, else by their inputs.

    Args:
        result: The result.
        data: New data.
        clients: Which of their clients.

    Raises:
        InputError: If the method finds no clusters, the module cannot be made again, or clients
            have no labels and the result no statistics of inputs.
    """
    labeled = {client_id: data.labeled_rows(data.rows[client_id]) for client_id in clients}
    with_labels = [client_id for client_id in clients if len(labeled[client_id])]
    without = [client_id for client_id in clients if not len(labeled[client_id])]
    if without and result.clustered and result.input_statistics is None:
        raise InputError(
            f"{data.path}: client {without[0]!r} is not placed in a cluster, has no labels in "
            f"column {data.target!r}, and the run has no statistics of its clients' inputs: add "
            "labels, or run again with --input-statistics"
        )
    assigned = []
    for chosen, rows, labels in ((with_labels, labeled, True), (without, data.rows, False)):
        if chosen:
            federation = _federation(result, data, {name: rows[name] for name in chosen}, labels)
            assignment = result.assign(federation, labels=labels)
            assigned.append(Newcomers(tuple(chosen), assignment, labels))
    return assigned


def predict(result: Result, data: NewData, clusters: dict[str, int]) -> Predictions:
    """Predict every row with the model of its client.

    Args:
        result: The result.
        data: New data.
        clusters: The cluster of each client that the run has no model for, -1 for none.

    Raises:
        InputError: If the module cannot be made again, or does not take the inputs.
    """
    signature, parts = _signature(result), {}
    probability: NDArray[np.float64] | None = np.full(len(data.x), np.nan)
    for client_id in data.client_ids:
        rows, cluster = data.rows[client_id], clusters.get(client_id)
        if cluster is not None and cluster < 0:
            continue
        module = result.module(client_id) if cluster is None else result.module(cluster=cluster)
        outputs = outputs_of(module, data.x[torch.from_numpy(rows)], signature)
        predictions = signature.predictions(outputs)
        decoded = (
            np.asarray(predictions) if data.schema is None else data.schema.decode(predictions)
        )
        parts[client_id] = (rows, decoded)
        if not signature.averages_probabilities or predictions.ndim > 1:
            probability = None
        if probability is not None:
            probability[rows] = signature.probabilities(outputs).amax(1).numpy()
    shape = next((decoded.shape[1:] for _, decoded in parts.values()), ())
    values = np.full((len(data.x), *shape), None, dtype=object)
    for rows, decoded in parts.values():
        values[rows] = decoded
    names = np.array(data.client_ids)[data.owners.client]
    return Predictions(names, values, probability)


def _federation(
    result: Result, data: NewData, rows: dict[str, NDArray[np.int64]], labels: bool
) -> Simulation:
    """Return clients of new data as a federation with the models of a result."""
    signature, architecture = _signature(result), result.architecture
    if signature.loss == "custom":
        raise InputError(
            "clients cannot be assigned here, because the run was trained with a loss of its own, "
            "which is not saved: use Result.assign with Simulation(..., loss=...) in Python"
        )
    assert architecture is not None
    index = np.concatenate([*rows.values()])
    owner = np.repeat(np.array([*rows]), [len(part) for part in rows.values()])
    unused = torch.zeros(len(index), *signature.target_shape)
    y = data.targets(index) if labels else unused.long() if signature.has_classes else unused
    dtype = dtype_named(signature.input_dtype)
    x = data.x[torch.from_numpy(index)]
    x = x.to(dtype) if dtype.is_floating_point else x
    clients = group(x, y, Owners.from_column("client", owner))
    return Simulation(
        clients, lambda: architecture.build(result.models[0]), loss=signature.loss, validation=0.0
    )


def _signature(result: Result) -> Signature:
    """Return what the result's models take.

    Raises:
        InputError: If it was not saved.
    """
    signature = None if result.architecture is None else result.architecture.signature
    if signature is None:
        raise InputError(
            "the run was saved without what its models take and what their outputs mean, by an "
            "earlier version: run it again"
        )
    return signature


def _has_value(value: object) -> bool:
    """Return whether a cell is not missing: neither None nor NaN."""
    return value is not None and bool(np.all(value == value))
