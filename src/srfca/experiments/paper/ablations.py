"""Ablations: what each part of SR-FCA is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from srfca.errors import unknown
from srfca.experiments.paper.plan import Row, make_rows, read


@dataclass(frozen=True)
class Ablations:
    """What is run.

    Args:
        experiments: Settings that make each experiment small, by name.
        rows: The rows of all tables by key.
        groups: The tables: keys of rows by title. The first row is what the others are compared
            with.
    """

    experiments: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, Row]
    groups: Mapping[str, tuple[str, ...]]


@cache
def load_ablations() -> Ablations:
    """Read what is run.

    >>> list(load_ablations().experiments)
    ['synthetic', 'rotated-mnist']
    """
    content = read("ablations.toml")
    rows = make_rows(content["rows"])
    groups = {group["title"]: tuple(group["rows"]) for group in content["groups"]}
    for keys in groups.values():
        for key in keys:
            if key not in rows:
                raise unknown("row", key, rows)
    experiments = {name: tuple(settings) for name, settings in content["experiments"].items()}
    return Ablations(experiments, rows, groups)
