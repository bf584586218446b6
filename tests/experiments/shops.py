"""Tables of two kinds of shops, for tests of what is done with new data."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np

Columns = dict[str, list[object]]


def shops(kinds: Mapping[str, int], rows: int = 40, seed: int = 0, shift: float = 0.0) -> Columns:
    """Rows of shops in which the old buy (kind 0) or the young do (kind 1).

    ``shift`` moves the ages of kind 1, so that inputs tell the kinds apart.
    """
    rng = np.random.default_rng(seed)
    columns: Columns = {name: [] for name in ("shop", "age", "city", "buys", "spends")}
    for shop, kind in kinds.items():
        ages = rng.normal(40 + shift * kind, 10, rows)
        center = 40 + shift * kind
        for age, city in zip(ages, rng.choice(["Ulm", "Bonn"], rows), strict=True):
            old = age > center
            columns["shop"].append(shop)
            columns["age"].append(round(float(age), 3))
            columns["city"].append(str(city))
            columns["buys"].append("yes" if old != bool(kind) else "no")
            columns["spends"].append(round(float(age) * (1 if kind else -1), 3))
    return columns


def without(columns: Columns, *names: str) -> Columns:
    return {name: values for name, values in columns.items() if name not in names}


def write_csv(path: Path, columns: Columns) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path
