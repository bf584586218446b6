"""``clients.csv``: a line for each client of a run, for spreadsheets and for the report."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from srfca.errors import InputError
from srfca.experiments.runner import ScoredRun
from srfca.files import replace_file
from srfca.report.view import ClientColumns, Numbers

FILE = "clients.csv"
_SCORES = ("loss", "accuracy", "tuned_loss", "tuned_accuracy")
_NUMBERS = ("samples", "truth", *_SCORES)


def client_columns(run: ScoredRun) -> ClientColumns:
    """Return what is known of the clients of a run."""
    data = run.federation.data
    columns = ClientColumns(
        samples=np.asarray(run.federation.sizes.cpu().numpy(), dtype=np.int64),
        truth=None if data.truth is None else np.asarray(data.truth.labels),
        split=run.split,
    )
    return columns.with_scores(run.scores, run.fine_tuned_scores)


def write_clients(
    folder: Path, client_ids: Sequence[str], labels: Sequence[int], columns: ClientColumns
) -> None:
    """Write a line for each client: its id, its cluster, and what is known of it.

    Args:
        folder: Where the file goes.
        client_ids: The clients.
        labels: Their clusters, -1 for none.
        columns: What is known of them.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    present = [name for name in _NUMBERS if getattr(columns, name) is not None]
    writer.writerow(["client", "cluster", *present, "split"])
    values = [getattr(columns, name).tolist() for name in present]
    for client_id, label, *numbers in zip(client_ids, labels, *values, strict=True):
        writer.writerow([client_id, label, *numbers, columns.split])
    replace_file(folder / FILE, file.getvalue().encode())


def read_clients(folder: Path, client_ids: Sequence[str]) -> ClientColumns:
    """Return what is known of the clients; nothing if the file is not there.

    Args:
        folder: Of a run.
        client_ids: The clients that it must be of.

    Raises:
        InputError: If the file is damaged, or of other clients.
    """
    path = folder / FILE
    if not path.exists():
        return ClientColumns()
    try:
        lines = list(csv.DictReader(io.StringIO(path.read_text())))
        columns = {name: [line[name] for line in lines] for name in lines[0]}
        if columns["client"] != list(client_ids):
            raise InputError(f"{path} is of other clients than the result beside it")
        whole = {
            name: np.array([int(value) for value in columns[name]])
            for name in ("samples", "truth") if name in columns
        }  # fmt: skip
        scores = {
            name: np.array([float(value) for value in columns[name]])
            for name in _SCORES if name in columns
        }  # fmt: skip
        return _columns(whole, scores, columns["split"][0])
    except (OSError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged: {error!r}") from error


def _columns(whole: dict[str, np.ndarray], scores: dict[str, Numbers], split: str) -> ClientColumns:
    return ClientColumns(whole.get("samples"), whole.get("truth"), split, **scores)
