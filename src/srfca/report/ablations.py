"""Tables of ablations, from records of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from srfca.report.paired import paired_difference
from srfca.report.reproduction import (
    Line,
    Record,
    has_accuracy,
    lines,
    local_steps,
    mean_text,
    metric_values,
    numbers_text,
    provenance,
    score,
)
from srfca.report.summary import Table
from srfca.report.tables import markdown_tables

PART = "ablations"
"""Name of the generated part of the page."""
_NOTES = """\
Each table changes one thing. Figures are means and standard deviations over seeds: clients in wrong
clusters in %, then test accuracy in % or test loss, averaged over clients. The column after it is
the mean difference to the first line of the table, seed by seed, with half the width of its 95 %
confidence interval (Student's t): a difference counts if it is larger than that. Local steps are
per client."""


def group_table(
    title: str,
    records: Mapping[str, Sequence[Record]],
    rows: Sequence[str],
    titles: Mapping[str, str],
) -> Table | None:
    """Make the table of a group of rows, None if there are no runs.

    Args:
        title: Title of the table.
        records: Runs by experiment.
        rows: Keys of the rows; the others are compared with the first.
        titles: Titles of all rows, by key.
    """
    chosen = {row: titles[row] for row in rows}
    by_experiment = {
        name: {line.row: line for line in lines(runs, chosen)} for name, runs in records.items()
    }
    present = [row for row in rows if any(row in by_row for by_row in by_experiment.values())]
    if not present:
        return None
    columns: list[str] = []
    cells: list[list[str]] = [[] for _ in present]
    for name, by_row in by_experiment.items():
        accuracy = has_accuracy(records[name])
        columns += [
            f"{name}: clusters", "wrong %", "accuracy %" if accuracy else "loss", "minus first",
            "local steps",
        ]  # fmt: skip
        for row, line_cells in zip(present, cells, strict=True):
            first = by_row.get(rows[0])
            line_cells += _cells(by_row.get(row), first if row != rows[0] else None, accuracy)
    names = [titles[row] for row in present]
    return Table(title, columns, names, cells, [[False] * len(columns) for _ in names], head="")


def ablations_markdown(
    records: Mapping[str, Sequence[Record]],
    groups: Mapping[str, Sequence[str]],
    titles: Mapping[str, str],
    settings: Mapping[str, Sequence[str]],
    command: str,
) -> str:
    """Return all tables.

    Args:
        records: Runs by experiment.
        groups: Keys of rows by title of the table.
        titles: Titles of the rows, by key.
        settings: Settings of each experiment.
        command: What makes these tables.
    """
    everything = [record for runs in records.values() for record in runs]
    small = "; ".join(f"{name} with {', '.join(settings[name])}" for name in records)
    made = [group_table(title, records, rows, titles) for title, rows in groups.items()]
    tables = [table for table in made if table is not None]
    text = f"`{command}`: {provenance(everything)} Experiments are small: {small}.\n\n{_NOTES}\n\n"
    return text + markdown_tables(tables, []).rstrip("\n") + "\n"


def _cells(line: Line | None, first: Line | None, accuracy: bool) -> list[str]:
    """Return the cells of a row for one experiment."""
    if line is None:
        return ["-"] * 5
    values = line.values(score)
    difference = None if first is None else paired_difference(values, first.values(score))
    clusters = [record["metrics"]["num_clusters"] for record in line.records.values()]
    return [
        "-" if None in clusters else numbers_text(clusters),
        mean_text(metric_values(line, "misclustering", 100), ".1f"),
        mean_text(values, ".2f" if accuracy else ".3g"),
        "" if difference is None else difference.text("+.2f" if accuracy else "+.2g"),
        mean_text(line.values(local_steps), ",.0f", deviation=False),
    ]
