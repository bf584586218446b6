"""Reports of a comparison as files: CSV to compute with, Markdown and LaTeX to read."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from srfca.errors import InputError
from srfca.files import replace_file, writable_folder
from srfca.report.markdown import table_line
from srfca.report.summary import Metrics, Table, costs, group_runs, metric_names, results


@dataclass(frozen=True)
class Report:
    """The runs of a comparison, to be written to a file.

    Args:
        runs: Their metrics.
        title: Title of the table of results.
        notes: Shown below the tables.
    """

    runs: Sequence[Metrics]
    title: str
    notes: Sequence[str] = ()

    @property
    def tables(self) -> tuple[Table, Table]:
        """Results and costs."""
        cost_title = "Cost per client, and time of a run"
        return results(self.runs, self.title), costs(self.runs, cost_title)


def notes(runs: Sequence[Metrics]) -> list[str]:
    """Return notes that a reader of the tables needs."""
    names = {group.name: None for group in group_runs(runs) if group.k == "mean"}
    if not names:
        return []
    return [
        f"{', '.join(names)}: given the number of clusters, K. 'Mean over K' is over the K shown, "
        "as the SR-FCA paper reports IFCA."
    ]


def check(path: Path) -> None:
    """Check that a table can be written to this file.

    Raises:
        InputError: If its name ends with no known format, or it cannot be written.
    """
    if path.suffix not in FORMATS:
        raise InputError(f"--table {path}: the name must end with {', '.join(FORMATS)}")
    if path.is_dir():
        raise InputError(f"--table {path}: is a folder")
    writable_folder(path.parent)


def write(report: Report, path: Path) -> None:
    """Write a report in the format of the file's name."""
    replace_file(path, FORMATS[path.suffix](report).encode())


def as_csv(report: Report) -> str:
    """Return a line for each method and K, with all metrics: fractions, and totals of costs."""
    runs = report.runs
    names = metric_names(runs)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    spreads = (f"{name}_{part}" for name in names for part in ("mean", "std"))
    writer.writerow(["experiment", "method", "name", "k", "scored_on", "clients", "runs", *spreads])
    for group in group_runs(runs):
        first = group.runs[0]
        cells = [first["experiment"], group.method, group.name, "" if group.k is None else group.k]
        cells += [first["scored_on"], first["clients"], len(group.runs)]
        for name in names:
            spread = group.spread(itemgetter(name))
            cells += ["", ""] if spread is None else [spread.mean, spread.deviation]
        writer.writerow(cells)
    return file.getvalue()


def as_markdown(report: Report) -> str:
    """Return the tables in Markdown, the best of each column in bold."""
    return markdown_tables(report.tables, report.notes)


def markdown_tables(tables: Iterable[Table], notes: Iterable[str]) -> str:
    """Return tables and notes in Markdown, the best cells in bold."""
    text = ""
    for table in tables:
        text += f"**{table.title}**\n\n"
        text += table_line([table.head, *table.columns])
        text += table_line(["---", *["---:"] * len(table.columns)])
        for name, cells, best in zip(table.names, table.cells, table.best, strict=True):
            marked = [f"**{c}**" if b else c for c, b in zip(cells, best, strict=True)]
            text += table_line([name, *marked])
        text += "\n"
    return text + "".join(f"{note}\n\n" for note in notes).rstrip("\n") + "\n"


def as_latex(report: Report) -> str:
    r"""Return the tables as ``tabular``; they need ``\usepackage{booktabs}``."""
    return latex_tables(report.tables, report.notes)


def latex_tables(tables: Iterable[Table], notes: Iterable[str]) -> str:
    r"""Return tables as ``tabular`` and notes as comments, the best cells in bold."""
    text = ""
    for table in tables:
        heads = (r"\shortstack{" + latex(c).replace("\n", r" \\ ") + "}" for c in table.columns)
        text += f"% {table.title}\n"
        text += rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}" + "\n"
        text += r"\toprule" + "\n" + " & ".join([table.head, *heads]) + r" \\" + "\n\\midrule\n"
        for name, cells, best in zip(table.names, table.cells, table.best, strict=True):
            marked = [
                rf"\textbf{{{latex(c)}}}" if b else latex(c)
                for c, b in zip(cells, best, strict=True)
            ]
            text += " & ".join([latex(name), *marked]) + r" \\" + "\n"
        text += "\\bottomrule\n\\end{tabular}\n\n"
    return text + "".join(f"% {note}\n" for note in notes)


def latex(text: str) -> str:
    r"""Escape text for LaTeX.

    >>> print(latex("96.4 ± 0.1 & 5 % of a_b"))
    96.4 $\pm$ 0.1 \& 5 \% of a\_b
    """
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {character: f"\\{character}" for character in "&%$#_{}"}
    special |= {"±": r"$\pm$", "→": r"$\to$"}
    return "".join(special.get(character, character) for character in text)


FORMATS: dict[str, Callable[[Report], str]] = {
    ".csv": as_csv,
    ".md": as_markdown,
    ".tex": as_latex,
}
"""Functions that format a report, by the ending of a file's name."""
