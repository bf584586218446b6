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
_KEYS = ("title", "method", "based_on", "settings", "k", "experiments")
"""What the section of a row may hold."""
Numbers = Literal["all", "true"]
"""Which numbers of clusters are tried: all of the experiment's, or the true one."""


@dataclass(frozen=True)
class Row:
    """A row of the tables: a method with settings of its own.

    Args:
        key: Names the row.
        title: In tables.
        method: Key of the method.
        settings: Settings of the method, such as ``restarts=5``.
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
    return make_rows(read(name))


def read(name: str) -> dict[str, Any]:
    """Read a file of this package."""
    return tomllib.loads((files("srfca.experiments.paper") / name).read_text("utf-8"))


def make_rows(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
    """Make rows from the sections of a file. A row may be based on one before it.

    Raises:
        InputError: If a section has an unknown key, or is based on no row before it.
    """
    rows: dict[str, Row] = {}
    for key, content in sections.items():
        rows[key] = _row(key, content, rows)
    return rows


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
    names: Sequence[str],
    quick: bool,
    settings: Sequence[str],
    choices: Sequence[str] = EXPERIMENTS,
) -> list[Experiment]:
    """Load experiments of the paper; no names are all of them.

    Args:
        names: Their names.
        quick: Make them small, for runs of a few seconds.
        settings: Changes, as ``--set`` takes them.
        choices: Names that are allowed.

    Raises:
        InputError: If there is no such experiment, or a setting is wrong.
    """
    for name in names:
        if name not in choices:
            raise unknown("experiment of the paper", name, choices)
    experiments = [config.load(name) for name in dict.fromkeys(names or choices)]
    return [e.set([*(e.quick if quick else ()), *settings]) for e in experiments]


def reduced_settings() -> dict[str, tuple[str, ...]]:
    """Read the settings that make experiments small enough for two CPU cores, by name.

    >>> list(reduced_settings())
    ['rotated-cifar10', 'label-cifar10', 'femnist', 'shakespeare']
    """
    return {name: tuple(s) for name, s in read("reduced.toml")["experiments"].items()}


def load_reduced(
    names: Sequence[str],
    reduced: Mapping[str, Sequence[str]],
    quick: bool,
    settings: Sequence[str],
) -> list[Experiment]:
    """Load reduced experiments.

    Args:
        names: Their names; none are all of them.
        reduced: Settings that make each experiment small, by name.
        quick: Make them even smaller, for runs of a few seconds.
        settings: Further changes.

    Raises:
        InputError: If there is no such experiment, or a setting is wrong.
    """
    chosen = load_experiments(names, False, [], list(reduced))
    return [e.set([*reduced[e.name], *(e.quick if quick else ()), *settings]) for e in chosen]


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


def _row(key: str, content: Mapping[str, Any], before: Mapping[str, Row]) -> Row:
    """Return the row that a section describes."""
    for name in content:
        if name not in _KEYS:
            raise unknown(f"key of row {key}", name, _KEYS)
    base = Row(key, key, key)
    if "based_on" in content:
        if content["based_on"] not in before:
            raise unknown(f"based_on of row {key}", content["based_on"], before)
        base = before[content["based_on"]]
    k = content.get("k", base.k)
    require(k in get_args(Numbers), f"k of row {key} must be 'all' or 'true', not {k!r}")
    experiments = dict(base.experiments)
    for name, settings in content.get("experiments", {}).items():
        experiments[name] = (*experiments.get(name, ()), *settings)
    return Row(
        key=key,
        title=content.get("title", key),
        method=content.get("method", base.method),
        settings=(*base.settings, *content.get("settings", ())),
        k=k,
        experiments=experiments,
    )
