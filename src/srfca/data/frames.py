"""Client data from a table with a client column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from srfca.data.client_data import ClientData
from srfca.data.grouping import Owners, draw_test_rows, group, marked_test_rows, true_clusters
from srfca.data.inference import infer_schema
from srfca.data.schema import TargetKind
from srfca.data.table import Table, as_table, is_index
from srfca.errors import InputError, is_number, require, unknown
from srfca.parameters import choices

MissingValues = Literal["error", "drop"]


def from_frame(
    table: Any,
    *,
    client: str,
    target: str,
    features: Sequence[str] | None = None,
    test: str | float | None = None,
    cluster: str | None = None,
    target_kind: TargetKind | None = None,
    standardize: bool | None = None,
    missing: MissingValues = "error",
    seed: int = 0,
) -> ClientData:
    """Return the rows of a table as client data; see ``ClientData.from_frame``."""
    view = as_table(table)
    test_column = test if isinstance(test, str) else None
    for name in (client, target):
        view.require_column(name)
    special = [name for name in (client, target, test_column, cluster) if name is not None]
    names = _feature_names(view, features, special)
    for name in special:
        require(special.count(name) == 1, f"column {name!r} is named for two purposes")
    if not isinstance(missing, str) or missing not in choices(MissingValues):
        raise unknown("missing", missing, choices(MissingValues))
    columns = view.columns([*special, *names], drop_missing=missing == "drop")
    owners = Owners.from_column(client, columns[client])
    held = None
    if test_column is not None:
        held = marked_test_rows(test_column, columns[test_column], owners)
    elif test is not None:
        require(is_number(test), f"test must be a column or a fraction, not {test!r}")
        held = draw_test_rows(float(test), owners, seed)
    truth = None if cluster is None else true_clusters(cluster, columns[cluster], owners)
    train = np.ones(len(owners.client), dtype=np.bool_) if held is None else ~held
    complete = Table(columns)
    schema = infer_schema(complete, names, client, target, target_kind, standardize, train)
    data = group(schema.encode(complete), schema.encode_targets(complete), owners, held, truth)
    return replace(data, schema=schema)


def _feature_names(
    table: Table, features: Sequence[str] | None, special: Sequence[str]
) -> list[str]:
    """Return the feature columns: those that are named, or all that have no other purpose."""
    for name in special:
        table.require_column(name)
    if features is None:
        return [name for name in table.names if name not in special and not is_index(name)]
    require(
        isinstance(features, str | Iterable) and getattr(features, "ndim", 1) == 1,
        f"features must be a list of columns, not {features!r}",
    )
    names = [features] if isinstance(features, str) else list(features)
    for name in names:
        if name in special:
            raise InputError(
                f"column {name!r} cannot be a feature: it is named for another purpose"
            )
        require(names.count(name) == 1, f"the feature {name!r} is named twice")
    return names
