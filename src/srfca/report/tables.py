"""A comparison as a file: CSV to compute with, Markdown and LaTeX to read."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from srfca.errors import InputError
from srfca.files import replace_file, writable_folder
from srfca.report.summary import Row, Table, costs, figures, lines, results


@dataclass(frozen=True)
class Report:
    """The rows of a comparison, and what is to be said of them."""

    rows: Sequence[Row]
    title: str
    notes: Sequence[str] = ()

    @property
    def tables(self) -> tuple[Table, Table]:
        """Results, and costs."""
        return results(self.rows, self.title), costs(
            self.rows, "Cost per client, and time of a run"
        )


def notes(rows: Sequence[Row]) -> list[str]:
    """What a reader of the table must know."""
    told = {line.name: None for line in lines(rows) if line.k == "mean"}
    if not told:
        return []
    return [
        f"{', '.join(told)}: told the number of clusters, K. 'Mean over K' is over the K shown, "
        "as the SR-FCA paper reports IFCA."
    ]


def check(path: Path) -> None:
    """Refuse a file that could not be written: before any run rather than after all."""
    if path.suffix not in FORMATS:
        raise InputError(f"--table {path}: the name must end with {', '.join(FORMATS)}")
    if path.is_dir():
        raise InputError(f"--table {path}: is a folder")
    writable_folder(path.parent)


def write(report: Report, path: Path) -> None:
    """Write a table in the format that the file's name asks for."""
    replace_file(path, FORMATS[path.suffix](report).encode())


def as_csv(report: Report) -> str:
    """A row for each method and K, all figures as the runs have them: fractions, and totals."""
    rows = report.rows
    names = figures(rows)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    spreads = (f"{name}_{part}" for name in names for part in ("mean", "std"))
    writer.writerow(["experiment", "method", "name", "k", "scored_on", "clients", "runs", *spreads])
    for line in lines(rows):
        first = line.rows[0]
        cells = [first["experiment"], line.method, line.name, "" if line.k is None else line.k]
        cells += [first["scored_on"], first["clients"], len(line.rows)]
        for name in names:
            found = line.spread(itemgetter(name))
            cells += ["", ""] if found is None else [found.mean, found.deviation]
        writer.writerow(cells)
    return file.getvalue()


def as_markdown(report: Report) -> str:
    """The tables of the terminal."""

    def escape(text: str) -> str:
        return text.replace("\n", " ").replace("|", "\\|")

    def row(cells: Sequence[str]) -> str:
        return f"| {' | '.join(map(escape, cells))} |\n"

    text = ""
    for table in report.tables:
        text += f"**{table.title}**\n\n"
        text += row(["method", *table.columns])
        text += row(["---", *["---:"] * len(table.columns)])
        for name, cells, best in zip(table.names, table.cells, table.best, strict=True):
            marked = [f"**{c}**" if b else c for c, b in zip(cells, best, strict=True)]
            text += row([name, *marked])
        text += "\n"
    return text + "".join(f"{note}\n\n" for note in report.notes).rstrip("\n") + "\n"


def as_latex(report: Report) -> str:
    r"""The same as ``tabular``; needs ``\usepackage{booktabs}``."""
    text = ""
    for table in report.tables:
        heads = (r"\shortstack{" + latex(c).replace("\n", r" \\ ") + "}" for c in table.columns)
        text += f"% {table.title}\n"
        text += rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}" + "\n"
        text += r"\toprule" + "\n" + " & ".join(["method", *heads]) + r" \\" + "\n\\midrule\n"
        for name, cells, best in zip(table.names, table.cells, table.best, strict=True):
            marked = [
                rf"\textbf{{{latex(c)}}}" if b else latex(c)
                for c, b in zip(cells, best, strict=True)
            ]
            text += " & ".join([latex(name), *marked]) + r" \\" + "\n"
        text += "\\bottomrule\n\\end{tabular}\n\n"
    return text + "".join(f"% {note}\n" for note in report.notes)


def latex(text: str) -> str:
    r"""Text as LaTeX writes it.

    >>> print(latex("96.4 ± 0.1 & 5 % of a_b"))
    96.4 $\pm$ 0.1 \& 5 \% of a\_b
    """
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {character: f"\\{character}" for character in "&%$#_{}"} | {"±": r"$\pm$"}
    return "".join(special.get(character, character) for character in text)


FORMATS: dict[str, Callable[[Report], str]] = {
    ".csv": as_csv,
    ".md": as_markdown,
    ".tex": as_latex,
}
