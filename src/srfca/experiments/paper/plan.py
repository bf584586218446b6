"""What is run: experiments, the rows of their tables, and seeds."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal, get_args

from srfca.errors import require, unknown
from srfca.experiments import config, runner
from srfca.experiments.executor import RunSpec
from srfca.experiments.experiment import Experiment, method_class

EXPERIMENTS = (
    "synthetic", "inverted-mnist", "rotated-mnist", "rotated-cifar10", "label-cifar10", "femnist",
    "shakespeare",
)  # fmt: skip
"""The experiments of the paper."""
Numbers = Literal["all", "true"]
"""Which numbers of clusters are tried: all of the experiment's, or the true one."""


@dataclass(frozen=True)
class Row:
    """A row of the tables: a method with settings of its own.

    Args:
        key: Names the row.
        title: In tables.
        method: Key of the method.
        settings: Of the method, such as ``restarts=5``.
        k: For methods that need the number of clusters. Where the truth is unknown, ``true`` is the
            smallest of the experiment's numbers.
        experiments: Further settings for some experiments, by name.
    """

    key: str
    title: str
    method: str
    settings: tuple[str, ...] = ()
    k: Numbers = "all"
    experiments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def settings_for(self, experiment: Experiment) -> tuple[str, ...]:
        """Return the settings as ``Experiment.set`` takes them."""
        settings = (*self.settings, *self.experiments.get(experiment.name, ()))
        return tuple(f"{self.method}.{setting}" for setting in settings)

    def numbers_of_clusters(self, experiment: Experiment) -> Sequence[int | None]:
        """Return the numbers of clusters to try; one None for a method that needs none."""
        if not method_class(self.method).needs_k:
            return [None]
        if self.k == "all":
            return experiment.k
        return [int(experiment.clusters) if experiment.clusters.isdigit() else min(experiment.k)]

    def applies_to(self, experiment: Experiment) -> bool:
        """Tell whether the row can be run: some methods need the truth."""
        return experiment.clusters != "unknown" or not method_class(self.method).needs_truth


def load_rows(name: str = "rows.toml") -> dict[str, Row]:
    """Read the rows of a table by key.

    >>> load_rows()["ifca-restarts"].settings
    ('restarts=5',)
    """
    text = (files("srfca.experiments.paper") / name).read_text("utf-8")
    return {key: _row(key, content) for key, content in tomllib.loads(text).items()}


def select(rows: Mapping[str, Row], keys: Iterable[str] | None) -> list[Row]:
    """Return the rows of these keys, all rows for None.

    Raises:
        InputError: If there is no such row.
    """
    if keys is None:
        return list(rows.values())
    for key in keys:
        if key not in rows:
            raise unknown("row", key, rows)
    return [rows[key] for key in dict.fromkeys(keys)]


def load_experiments(
    names: Sequence[str], quick: bool, settings: Sequence[str]
) -> list[Experiment]:
    """Load experiments of the paper; no names are all of them.

    Args:
        names: Their names.
        quick: Make them small, for runs of a few seconds.
        settings: Changes, as ``--set`` takes them.

    Raises:
        InputError: If there is no such experiment, or a setting is wrong.
    """
    for name in names:
        if name not in EXPERIMENTS:
            raise unknown("experiment of the paper", name, EXPERIMENTS)
    experiments = [config.load(name) for name in dict.fromkeys(names or EXPERIMENTS)]
    return [e.set([*(e.quick if quick else ()), *settings]) for e in experiments]


def run_specs(
    experiments: Iterable[Experiment], rows: Iterable[Row], seeds: Sequence[int]
) -> list[RunSpec]:
    """Return all runs, experiment by experiment and seed by seed.

    Raises:
        InputError: If a method does not exist, or a parameter is not allowed.
    """
    rows = list(rows)
    return [
        spec
        for experiment in experiments
        for seed in seeds
        for row in rows
        for spec in _specs(experiment, row, seed)
    ]


def _specs(experiment: Experiment, row: Row, seed: int) -> list[RunSpec]:
    """Return the runs of a row with one seed: one for each number of clusters."""
    if not row.applies_to(experiment):
        return []
    specs = []
    for k in row.numbers_of_clusters(experiment):
        settings = row.settings_for(experiment)
        settings += () if k is None else (f"{row.method}.k={k}",)
        if not method_class(row.method).needs_truth:
            runner.make_method(experiment.set(settings), row.method)
        specs.append(RunSpec(row.method, seed, k, settings, experiment.name, row.key))
    return specs


def _row(key: str, content: Mapping[str, Any]) -> Row:
    """Return the row that a section describes."""
    known = ("title", "method", "settings", "k", "experiments")
    for name in content:
        if name not in known:
            raise unknown(f"key of row {key}", name, known)
    k = content.get("k", "all")
    require(k in get_args(Numbers), f"k of row {key} must be 'all' or 'true', not {k!r}")
    experiments = content.get("experiments", {})
    return Row(
        key=key,
        title=content.get("title", key),
        method=content.get("method", key),
        settings=tuple(content.get("settings", ())),
        k=k,
        experiments={name: tuple(settings) for name, settings in experiments.items()},
    )
