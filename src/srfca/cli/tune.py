"""``srfca tune``: search for parameters of a method."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srfca.cli import completion
from srfca.cli.options import ExperimentOptions, interruptible, whole_number, with_experiment

if TYPE_CHECKING:
    from srfca.experiments.tune import Trial


@with_experiment
def tune(
    options: ExperimentOptions,
    method: Annotated[
        str,
        typer.Option(
            metavar="KEY",
            show_default=False,
            autocompletion=completion.methods,
            help="A method of 'srfca list', or your MODULE:CLASS; default: sr-fca.",
        ),
    ] = "sr-fca",
    trials: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole_number(1),
            show_default=False,
            help="Settings to try in all, including those of earlier calls; default: 20.",
        ),
    ] = 20,
    seeds: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole_number(1),
            show_default=False,
            help="Seeds that a trial is averaged over, from 1000 on; default: 1.",
        ),
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Keep the search in this folder, or resume it.")
    ] = None,
) -> None:
    """Search learning rate and parameters of a method.

    Settings are ranked on validation data. The method is SR-FCA by default.
    """
    from srfca.callbacks import ProgressBars
    from srfca.cli import tables
    from srfca.cli.console import show
    from srfca.experiments import tune as search
    from srfca.methods.registry import method_key, method_name

    def on_finish(trial: Trial) -> None:
        if not as_json:
            print(tables.trial_line(trial), file=sys.stderr, flush=True)

    with interruptible():
        method = method_key(method)
        experiment = options.load([method])
        ranked = search.tune(
            experiment, method, trials=trials, seeds=seeds, device=options.device,
            folder=options.data_dir, out=out, monitor=ProgressBars(), on_finish=on_finish,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(search.summarize(experiment, ranked, method)))
        return
    failed = sum(trial.loss is None for trial in ranked)
    title = f"{experiment.name}, {method_name(method)}, {len(ranked)} trials, {failed} failed"
    show(title, style="bold")
    show(tables.trials_table(ranked[:5]))
    show("Best: " + " ".join(f"--set {setting}" for setting in ranked[0].settings))
