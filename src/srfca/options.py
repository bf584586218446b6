"""The options that the commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from srfca.errors import InputError, require

if TYPE_CHECKING:
    from srfca.experiments.config import Experiment

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Where data sets are; else SRFCA_DATA, else the user's cache."),
]
Seed = Annotated[
    int, typer.Option(min=0, max=2**63 - 1, help="Decides the data, w0 and every draw.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per run, nothing else.")]
Personalise = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="STEPS",
        help="Let clients fine-tune their model at the end, by at most so many steps.",
    ),
]


@dataclass(frozen=True)
class Common:
    """What to run, and where."""

    name: Annotated[
        str | None, typer.Argument(help="The experiment; 'srfca list' shows them all.")
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(help="Your own data instead: a .npz or .parquet file, or a folder of these."),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(help="For --data: mlp (default), linear, ... or MODULE:FACTORY, your own."),
    ] = None
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto"
    data_dir: DataDir = None
    quick: Annotated[bool, typer.Option("--quick", help="A small run of a few seconds.")] = False
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, such as trim=0.2."),
    ] = None

    def experiment(self, personalise: int | None = None) -> Experiment:
        """The experiment of this name, or of a user's own data, with the settings applied."""
        require(
            self.name is None or self.data is None,
            f"either {self.name!r} or --data {self.data}, not both",
        )
        tuned = [] if personalise is None else [f"fine_tune_steps={personalise}"]
        settings = [*tuned, *(self.set_ or [])]
        if self.data is not None:
            from srfca.experiments import custom

            quick = "--quick is for the experiments of 'srfca list', not for --data"
            require(not self.quick, quick)
            return custom.own(self.data, self.model or "mlp").set(settings)
        if self.name is None:
            raise InputError("name an experiment ('srfca list' shows them), or give --data")
        require(
            self.model is None, f"--model goes with --data: {self.name!r} has a model of its own"
        )
        from srfca.experiments import config

        experiment = config.load(self.name)
        return experiment.set([*(experiment.quick if self.quick else ()), *settings])


def with_common(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of ``Common``, which it is given as its first argument."""
    hints = get_type_hints(Common, include_extras=True)
    shared = [
        Parameter(
            each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name]
        )
        for each in fields(Common)
    ]
    own = signature(command, eval_str=True)
    others = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in list(own.parameters.values())[1:]]

    @wraps(command)
    def whole(**given: Any) -> None:
        common = Common(**{each.name: given.pop(each.name) for each in fields(Common)})
        command(common, **given)

    taken = [*shared, *others]
    whole.__signature__ = own.replace(parameters=taken)  # type: ignore[attr-defined]
    whole.__annotations__ = {each.name: each.annotation for each in taken}
    del whole.__wrapped__
    return whole
