"""The generated part of the page of results: what was run beside what was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from srfca.report.reproduction import (
    REFERENCE,
    Published,
    Record,
    experiment_table,
    provenance,
    stages_table,
    summary_table,
)
from srfca.report.tables import markdown_tables

PART = "reproduce"
"""Name of the generated part."""
_NOTES = """\
Figures are means and standard deviations over seeds: test accuracy in %, or test loss on synthetic,
averaged over clients. "Minus SR-FCA" is the mean difference seed by seed, with half the width of
its 95 % confidence interval (Student's t): a difference counts if it is larger than that. Clusters
are those with clients: where IFCA has fewer than K, models were left empty. Local steps are per
client, and seconds those of a run. The best is bold, Oracle aside. v1 and TMLR are the published
figures of the paper's two versions."""


def figure_file(experiment: str) -> str:
    """Return the file of an experiment's histogram of distances."""
    return f"distances-{experiment}.svg"


def histogram_record(records: Sequence[Record]) -> Record | None:
    """Return the run whose distances are drawn: SR-FCA's of the first seed."""
    runs = [r for r in records if r["run"]["row"] == REFERENCE and r["distances"] is not None]
    return min(runs, key=lambda record: record["run"]["seed"], default=None)


def results_markdown(
    records: Mapping[str, Sequence[Record]],
    titles: Mapping[str, str],
    published: Published,
    command: str,
) -> str:
    """Return the summary, and a section for each experiment.

    Args:
        records: Runs by experiment.
        titles: Titles of the rows, by key.
        published: Published figures by source, experiment and row.
        command: What makes these tables.
    """
    everything = [record for runs in records.values() for record in runs]
    text = f"`{command}`: {provenance(everything)}\n\n{_NOTES}\n\n"
    summary = summary_table("All experiments", records, titles, published)
    text += markdown_tables([summary], []).rstrip("\n") + "\n"
    for name, runs in records.items():
        figures = {source: published[source].get(name, {}) for source in published}
        tables = [experiment_table("Methods", runs, titles, figures)]
        if (stages := stages_table("SR-FCA, stage by stage", runs)) is not None:
            tables.append(stages)
        text += f"\n### {name}, measured\n\n{provenance(runs)}\n\n"
        text += markdown_tables(tables, []).rstrip("\n") + "\n"
        if histogram_record(runs) is not None:
            text += f"\n![Distances of local models on {name}](figures/{figure_file(name)})\n"
    return text
