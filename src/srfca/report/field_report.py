"""The report of a benchmark: its tables and notes, for the terminal and for files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from srfca.files import replace_file
from srfca.report.field import REFERENCES, SUBJECT, FieldLine
from srfca.report.field_tables import (
    as_csv,
    cluster_columns,
    make_table,
    method_names,
    score_columns,
)
from srfca.report.flux import published_table
from srfca.report.summary import Table
from srfca.report.tables import latex_tables, markdown_tables


@dataclass(frozen=True)
class FieldReport:
    """The lines of a benchmark's table, to be shown or written to a file.

    Args:
        lines: A line for each federation, or for each group of them.
        title: Title of the table.
        fine_tune: Steps of fine-tuning, 0 for none.
        remarks: Notes beyond those that explain the table.
    """

    lines: Sequence[FieldLine]
    title: str
    fine_tune: int = 0
    remarks: Sequence[str] = ()

    def tables(self, full: bool = False, split: bool = False) -> list[Table]:
        """Return the table, and that of published figures if they can be compared.

        Args:
            full: Show baselines before and after fine-tuning, else the better of both.
            split: Make one table of scores and another of clusters, for a narrow terminal.
        """
        methods = method_names([run for line in self.lines for run in line.runs])
        scores = score_columns(self.lines, methods, full)
        clusters = cluster_columns(self.lines)
        if split and clusters:
            title = "Clusters of SR-FCA"
            tables = [
                make_table(self.title, self.lines, scores, methods),
                make_table(title, self.lines, clusters, methods),
            ]
        else:
            tables = [make_table(self.title, self.lines, [*scores, *clusters], methods)]
        published = published_table(self.lines)
        return tables if published is None else [*tables, published]

    def notes(self, full: bool = False) -> list[str]:
        """Return notes that a reader of the tables needs."""
        methods = method_names([run for line in self.lines for run in line.runs])
        tuned = self.fine_tune > 0 and any(key != SUBJECT for key in methods)
        notes = []
        if tuned and full:
            notes.append(
                f"a → b: before and after at most {self.fine_tune} steps of fine-tuning; held-out "
                "data decide how many. SR-FCA's score includes its own decision on fine-tuning."
            )
        elif tuned:
            notes.append(
                f"*: after at most {self.fine_tune} steps of fine-tuning, where that is better. "
                "SR-FCA's score includes its own decision on fine-tuning."
            )
        if any(line.difference for line in self.lines):
            present = [methods[key] for key in REFERENCES if key in methods]
            notes.append(
                f"SR-FCA - best: to the best of {', '.join(present)}, fine-tuned or not; the "
                "deviation is that of the differences by seed. !: worse by more than it."
            )
        losses = [line.title for line in self.lines if not line.is_accuracy]
        if losses:
            notes.append(f"{', '.join(losses)}: losses, lower is better.")
        if SUBJECT in methods:
            notes.append(
                "clusters: found by SR-FCA, for each seed if they differ, of the true number; "
                "doubtful: runs that warn that another answer may do as well; local steps: of "
                "SR-FCA, per client."
            )
        if SUBJECT in methods and any(line.outliers for line in self.lines):
            notes.append(
                "outliers alone: true clusters of one client that keep a model of their own, over "
                "all seeds; then the worst that one of the others gains over training alone."
            )
        if any(line.num_federations > 1 for line in self.lines):
            notes.append(_means_note(self.lines))
        return [*notes, *self.remarks]

    def write(self, path: Path) -> None:
        """Write the report in the format of the file's name: .csv, .md or .tex."""
        if path.suffix == ".csv":
            text = as_csv(self.lines)
        elif path.suffix == ".tex":
            text = latex_tables(self.tables(full=True), self.notes(full=True))
        else:
            text = markdown_tables(self.tables(full=True), self.notes(full=True))
        replace_file(path, text.encode())


def score_title(lines: Sequence[FieldLine]) -> str:
    """Say what the scores of a table are."""
    splits = sorted({run["scored_on"] for line in lines for run in line.runs})
    kinds = {line.is_accuracy: None for line in lines}
    score = " or ".join("accuracy in %" if accuracy else "loss" for accuracy in kinds)
    return f"Mean {' or '.join(splits)} {score} of the clients"


def _means_note(lines: Sequence[FieldLine]) -> str:
    """Say how many federations the lines are means over."""
    counts: dict[int, list[str]] = {}
    for line in lines:
        if line.num_federations > 1:
            counts.setdefault(line.num_federations, []).append(line.title)
    parts = (f"over {count} federations: {', '.join(counts[count])}" for count in counts)
    return f"Means {'; '.join(parts)}."
