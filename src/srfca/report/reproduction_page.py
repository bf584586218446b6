"""The generated part of the page of results: what was run beside what was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from srfca.report.reproduction import (
    REFERENCE,
    Published,
    Record,
    experiment_table,
    provenance,
    shortfalls,
    stages_table,
    summary_table,
)
from srfca.report.tables import markdown_tables

STAGED = (REFERENCE, "literal")
"""Rows whose stages are shown."""
_NOTES = """\
Figures are means and standard deviations over seeds: test accuracy in %, or test loss on synthetic,
averaged over clients. "Minus SR-FCA" is the mean difference seed by seed, with half the width of
its 95 % confidence interval (Student's t): a difference counts if it is larger than that. Clusters
are those with clients: where IFCA has fewer than K, models were left empty. Local steps are per
client, and seconds those of a run. The best is bold, Oracle aside."""
_PUBLISHED = """\
v1 and TMLR are the published figures of the paper's two versions."""


def figure_file(experiment: str, kind: str) -> str:
    """Return the file of an experiment's histogram of distances.

    >>> figure_file("femnist", "reduced")
    'distances-femnist-reduced.svg'
    """
    return f"distances-{experiment}-{kind}.svg"


def histogram_record(records: Sequence[Record]) -> Record | None:
    """Return the run whose distances are drawn: SR-FCA's of the first seed."""
    runs = [r for r in records if r["run"]["row"] == REFERENCE and r["distances"] is not None]
    return min(runs, key=lambda record: record["run"]["seed"], default=None)


def results_markdown(
    records: Mapping[str, Sequence[Record]],
    titles: Mapping[str, str],
    published: Published,
    command: str,
    kind: str,
    settings: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> str:
    """Return the summary, and a section for each experiment.

    Args:
        records: Runs by experiment.
        titles: Titles of the rows, by key.
        published: Published figures by source, experiment and row.
        command: What makes these tables.
        kind: Of the runs, in headings: ``measured`` or ``reduced``.
        settings: That make an experiment small, by name.
    """
    everything = [record for runs in records.values() for record in runs]
    notes = f"{_NOTES} {_PUBLISHED}" if published else _NOTES
    text = f"`{command}`: {provenance(everything)}\n\n{notes}\n\n"
    text += f"{_behind(records, titles, published)}\n\n"
    summary = summary_table("All experiments", records, titles, published)
    text += markdown_tables([summary], []).rstrip("\n") + "\n"
    for name, runs in records.items():
        figures = {source: published[source].get(name, {}) for source in published}
        tables = [experiment_table("Methods", runs, titles, figures)]
        for row in STAGED:
            stages = stages_table(f"{titles.get(row)}, stage by stage", runs, row)
            tables += [] if stages is None else [stages]
        text += f"\n### {name}, {kind}\n\n{provenance(runs)}"
        text += f" With {', '.join(settings[name])}.\n\n" if name in settings else "\n\n"
        text += markdown_tables(tables, []).rstrip("\n") + "\n"
        if histogram_record(runs) is not None:
            file = figure_file(name, kind)
            text += f"\n![Distances of local models on {name}](figures/{file})\n"
    return text


def _behind(
    records: Mapping[str, Sequence[Record]], titles: Mapping[str, str], published: Published
) -> str:
    """Say where SR-FCA is behind."""
    parts = []
    for name, runs in records.items():
        figures = {source: published[source].get(name, {}) for source in published}
        if phrases := shortfalls(runs, titles, figures):
            parts.append(f"on {name}, {', '.join(phrases)}")
    if parts:
        return f"**Where SR-FCA is behind:** {'; '.join(parts)}."
    below = "below no published figure, and " if published else ""
    return f"**SR-FCA is {below}behind no other method by more than the confidence interval.**"
