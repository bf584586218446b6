"""``srfca predict`` and ``srfca assign``: a saved run on new data."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srfca.cli.options import Json, interruptible
from srfca.cli.saved_run import Factory, SavedRun, load_result

if TYPE_CHECKING:
    from srfca.experiments.new_data import NewData, Predictions
    from srfca.methods import Result
    from srfca.report.placements import Placement

NewFile = Annotated[
    Path,
    typer.Argument(
        metavar="NEW",
        help="A .csv, .parquet or .npz file with the columns of the run's data; without a target, "
        "newcomers are placed by their inputs.",
    ),
]


def predict(
    run: SavedRun,
    new: NewFile,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the predictions, as CSV.")
    ] = None,
    model: Factory = None,
) -> None:
    """Predict each row of a file with the model of its client.

    Clients that were not in the run are assigned to a cluster first.
    """
    from srfca.analysis.names import count_of
    from srfca.cli.console import show, show_error
    from srfca.experiments import new_data
    from srfca.files import replace_file

    with interruptible():
        result = load_result(run, model)
        data = new_data.read_new_data(new, result)
        newcomers = new_data.unplaced_clients(result, data)
        one_model = new_data.has_one_model(result)
        placed = [] if one_model else _place(result, data, newcomers)
        clusters = {p.client: -1 if p.cluster is None else p.cluster for p in placed}
        clusters |= dict.fromkeys(newcomers, 0) if one_model else {}
        predictions = new_data.predict(result, data, clusters)
        content = csv_text(predictions)
        if out is not None:
            replace_file(out, content.encode())
    for placement in placed:
        show_error(sentence(placement))
    if out is None:
        typer.echo(content, nl=False)
    else:
        clients = count_of(len(data.client_ids), "client")
        show(f"{count_of(len(predictions.client), 'prediction')} for {clients}: {out}")


def assign(run: SavedRun, new: NewFile, as_json: Json = False, model: Factory = None) -> None:
    """Show the cluster of each client of a file.

    Each comes with how sure it is, and with the next cluster if it is nearly a coin toss.
    """
    from srfca.cli.console import show
    from srfca.cli.tables import placements_table
    from srfca.experiments.new_data import read_new_data

    with interruptible():
        result = load_result(run, model)
        data = read_new_data(new, result)
        placed = _place(result, data, data.client_ids)
    if as_json:
        for placement in placed:
            typer.echo(json.dumps(asdict(placement)))
        return
    show(placements_table(placed))
    for labels, text in (
        (True, "Margin: how much larger the loss of the next cluster's model is, relative to it."),
        (False, "Margin: how many standard deviations less alike the next cluster's inputs are."),
    ):
        if any(placement.labels == labels for placement in placed):
            show(text)


def csv_text(predictions: Predictions) -> str:
    """Return predictions as CSV: client, prediction, and the probability of a class."""
    values = predictions.values.reshape(len(predictions.client), -1)
    count = values.shape[1]
    names = ["prediction"] if count == 1 else [f"prediction_{i}" for i in range(count)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["client", *names, *["probability"] * (predictions.probability is not None)])
    for row, client in enumerate(predictions.client.tolist()):
        cells = [client, *values[row].tolist()]
        if predictions.probability is not None:
            missing = values[row, 0] is None
            cells.append("" if missing else f"{predictions.probability[row]:.4f}")
        writer.writerow(cells)
    return text.getvalue()


def sentence(placement: Placement) -> str:
    """Say where a newcomer was placed, or why not."""
    from srfca.analysis.names import percent

    note = f": {placement.note}" if placement.note else ""
    if placement.cluster is None:
        return f"client {placement.client!r} is in no cluster, and has no predictions{note}"
    sure = "" if placement.confidence is None else f", confidence {percent(placement.confidence)}"
    return (
        f"client {placement.client!r} is new, and placed in cluster {placement.cluster}{sure}{note}"
    )


def _place(result: Result, data: NewData, clients: list[str] | tuple[str, ...]) -> list[Placement]:
    """Return where clients are placed, in their order."""
    from srfca.experiments.new_data import assign_newcomers
    from srfca.report.placements import placements

    limit = None if result.loss_limits is None else result.loss_limits.limit
    placed = {
        placement.client: placement
        for newcomers in assign_newcomers(result, data, clients)
        for placement in placements(
            newcomers.client_ids, newcomers.assignment, newcomers.labels, limit
        )
    }
    return [placed[client] for client in clients]
