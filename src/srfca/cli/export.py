"""``srfca export``: the models of a run as files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srfca.cli.options import interruptible, whole_number
from srfca.cli.saved_run import Factory, SavedRun, load_result
from srfca.errors import require


def export(
    run: SavedRun,
    format: Annotated[
        str,
        typer.Option(
            show_default=False,
            help="safetensors (the default), torch (a state_dict), or onnx (srfca[onnx]).",
        ),
    ] = "safetensors",
    cluster: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            parser=whole_number(0),
            help="Only this cluster's model. Repeatable; default: those of all clusters.",
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="This client's final model instead. Repeatable."),
    ] = None,
    all_clients: Annotated[
        bool, typer.Option("--all-clients", help="The final models of all clients instead.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder for the files; default: models, in the folder of the run."),
    ] = None,
    model: Factory = None,
) -> None:
    """Write the models of a run as files, one for each cluster."""
    from srfca.cli.console import show
    from srfca.experiments.saved import find
    from srfca.models.export import check_format

    with interruptible():
        require(
            not (all_clients and (client or cluster)),
            "--all-clients goes without --client and --cluster",
        )
        check_format(format)
        result = load_result(run, model)
        clients = result.client_ids if all_clients else client or []
        folder = out or find(run) / "models"
        files = result.export(folder, format, clusters=cluster, clients=clients)  # type: ignore[arg-type]
    for path in files:
        show(str(path))
    has_own = result.individual_models is not None or result.fine_tuned_models is not None
    if not clients and (has_own or result.mixture_weights is not None):
        show(
            "Clients of this run have models of their own as well: --client NAME, or --all-clients."
        )
