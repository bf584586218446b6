"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from srfca.cli.completion import experiments
from srfca.cli.console import show_error
from srfca.errors import InputError, require

if TYPE_CHECKING:
    from srfca.experiments.experiment import Experiment


def whole_number(minimum: int, maximum: int | None = None) -> Callable[[Any], int]:
    """Return a parser of whole numbers in a range, with error messages in words."""

    def parse(value: Any) -> int:
        try:
            number = int(value)
        except ValueError:
            raise typer.BadParameter(f"must be a whole number, not {value!r}") from None
        if number < minimum:
            raise typer.BadParameter(f"must be at least {minimum}, not {number}")
        if maximum is not None and number > maximum:
            raise typer.BadParameter(f"must be at most {maximum}, not {number}")
        return number

    return parse


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="Folder of data sets; default: SRFCA_DATA, else the user's cache."
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=whole_number(0, 2**63 - 1),
        show_default=False,
        help="Decides the data, the initial model and every draw; default: 0.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per run, nothing else.")]
FineTune = Annotated[
    int | None,
    typer.Option(
        "--fine-tune",
        metavar="STEPS",
        parser=whole_number(0),
        help="Let each client fine-tune its final model, by at most this many steps.",
    ),
]
Curves = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        parser=whole_number(0),
        help="Score the models after every N rounds, for learning curves; counted as cost.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        show_default=False, help="auto (a GPU if there is one; the default), cpu, cuda:1, ..."
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="A small run of a few seconds.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        parser=whole_number(1),
        help="Runs at a time; default: one per core, one on a GPU.",
    ),
]
TableFiles = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Write the table: .csv, .md or .tex. Repeatable."),
]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Write a page about what was found: .html."),
]
NoDifferences = Annotated[
    bool,
    typer.Option(
        "--no-differences", help="Do not sum up clients' data to say how clusters differ."
    ),
]
SampleInputs = Annotated[
    int | None,
    typer.Option(
        "--sample-inputs",
        metavar="N",
        parser=whole_number(0),
        help="Training samples of each cluster in the report, if inputs are images; default: 6, "
        "with --data 0.",
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND[:PLACE]",
        help="Log every round: tensorboard:FOLDER, mlflow:EXPERIMENT or wandb:PROJECT. Repeatable.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="On a Ray cluster: at HOST:PORT, else that of RAY_ADDRESS or of this machine.",
    ),
]
SavedRuns = Annotated[
    Path | None,
    typer.Option(help="Save runs in this folder; runs that it holds are not repeated."),
]
_TABLE_OPTIONS = (
    "client", "target", "features", "test", "target_kind", "standardize", "missing",
)  # fmt: skip
"""Options that say how a user's data are read."""


@dataclass(frozen=True)
class ExperimentOptions:
    """What to run, and where."""

    name: Annotated[
        str | None,
        typer.Argument(
            help="An experiment of 'srfca list', or a TOML file.", autocompletion=experiments
        ),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(
            help="Your data instead: a .csv, .parquet or .npz file, or a folder of these."
        ),
    ] = None
    client: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="With --data: the client of each row; default: the column client.",
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="With --data: what to predict; default: the column y."),
    ] = None
    features: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,...",
            help="With --data: the inputs; default: x if it is an array, else all other columns.",
        ),
    ] = None
    test: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|FRACTION",
            help="With --data: the column that marks test rows, or the fraction of each client's "
            "rows to draw; default: the column split, if there is one.",
        ),
    ] = None
    target_kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="With --data: classes or values, where both make sense."),
    ] = None
    standardize: Annotated[
        bool | None,
        typer.Option(
            "--standardize/--no-standardize",
            help="With --data: bring numbers to mean 0 and standard deviation 1; default: yes, "
            "unless inputs are an array x.",
        ),
    ] = None
    missing: Annotated[
        str | None,
        typer.Option(
            metavar="ACTION",
            help="With --data: drop leaves out rows with missing values; default: error.",
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(help="With --data: mlp (the default), linear, ... or your MODULE:FACTORY."),
    ] = None
    device: Device = "auto"
    data_dir: DataDir = None
    quick: Quick = False
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting: trim=0.2, or oracle.lr=0.2 for one method. Repeatable.",
        ),
    ] = None

    def load(
        self,
        methods: Sequence[str] | None = None,
        fine_tune: int | None = None,
        curves: int | None = None,
        also_used: Sequence[str] = (),
    ) -> Experiment:
        """Load the experiment, or the user's data, and apply the settings.

        Args:
            methods: Keys of the methods that will run, None for those of a comparison; those by
                ``MODULE:CLASS`` get a section.
            fine_tune: Steps of fine-tuning.
            curves: Rounds between two points of learning curves.
            also_used: Methods that do not run, but whose settings have an effect.

        Raises:
            InputError: If the options contradict each other, one of them is wrong, or a setting
                would have no effect.
        """
        require(
            self.name is None or self.data is None,
            f"give either the experiment {self.name!r} or --data {self.data}, not both",
        )
        from srfca.experiments.compare import default_methods

        experiment = self._load()
        methods = default_methods(experiment) if methods is None else methods
        experiment = experiment.with_methods(methods)
        experiment.require_used(self.set_ or [], [*methods, *also_used])
        settings = list(experiment.quick) if self.quick else []
        if fine_tune is not None:
            settings.append(f"fine_tune_steps={fine_tune}")
        if curves is not None:
            settings.append(f"curves={curves}")
        return experiment.set([*settings, *(self.set_ or [])])

    def _load(self) -> Experiment:
        if self.data is not None:
            from srfca.experiments.user_data import experiment_from_data

            require(
                not self.quick,
                "--quick is for experiments of 'srfca list', which say what a small run is; with "
                "--data, shorten the training: --set steps=20",
            )
            return experiment_from_data(self.data, self.model or "mlp", **self._table_options())
        if self.name is None:
            raise InputError("name an experiment ('srfca list' shows them), or give --data")
        for option in ("model", *_TABLE_OPTIONS):
            require(
                getattr(self, option) is None,
                f"--{option.replace('_', '-')} goes with --data: the experiment {self.name!r} has "
                "its own data and model",
            )
        from srfca.experiments import config

        return config.load(self.name)

    def _table_options(self) -> dict[str, Any]:
        """Return the options that say how the data are read, as ``srfca.data.load`` takes them."""
        given = {name: getattr(self, name) for name in _TABLE_OPTIONS}
        if self.features is not None:
            given["features"] = split_list(self.features, "--features")
        if self.test is not None:
            given["test"] = _column_or_fraction(self.test)
        return {name: value for name, value in given.items() if value is not None}


def _column_or_fraction(text: str) -> str | float:
    """Return a number if it is one, else the name of a column."""
    try:
        return float(text)
    except ValueError:
        return text


def with_experiment(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of ``ExperimentOptions`` to a command, which gets them as first argument."""
    hints = get_type_hints(ExperimentOptions, include_extras=True)
    shared = [
        Parameter(
            option.name,
            Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=hints[option.name],
        )
        for option in fields(ExperimentOptions)
    ]
    original = signature(command, eval_str=True)
    specific = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for parameter in list(original.parameters.values())[1:]
    ]

    @wraps(command)
    def wrapper(**values: Any) -> None:
        options = {option.name: values.pop(option.name) for option in fields(ExperimentOptions)}
        command(ExperimentOptions(**options), **values)

    parameters = [*shared, *specific]
    wrapper.__signature__ = original.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del wrapper.__wrapped__
    return wrapper


AUTO = "auto"
"""What ``--ray`` without an address stands for."""


def with_ray_address(arguments: Sequence[str]) -> list[str]:
    """Return arguments of the command line with ``auto`` after each ``--ray`` without an address.

    >>> with_ray_address(["run", "--ray", "synthetic"]), with_ray_address(["run", "--ray", "a:1"])
    (['run', '--ray', 'auto', 'synthetic'], ['run', '--ray', 'a:1'])
    """
    filled = []
    for position, argument in enumerate(arguments):
        filled.append(argument)
        following = arguments[position + 1] if position + 1 < len(arguments) else ""
        is_address = following in (AUTO, "local") or (
            ":" in following and not following.startswith("-")
        )
        if argument == "--ray" and not is_address:
            filled.append(AUTO)
    return filled


def ray_address(option: str) -> str | None:
    """Return the address of ``--ray``, as ``srfca.ray.connect`` takes it."""
    return None if option == AUTO else option


def split_list(text: str, option: str) -> list[str]:
    """Return the items of a comma-separated option.

    Raises:
        InputError: If there are none.
    """
    items = [item.strip() for item in text.split(",") if item.strip()]
    require(bool(items), f"{option} is empty: give one or more, separated by commas")
    return items


def method_keys(text: str) -> list[str]:
    """Return the keys of the methods of ``--methods``, each given by key or displayed name.

    ``all`` stands for every registered method that is not named.

    Raises:
        InputError: If there are none.
    """
    from srfca.methods.registry import all_methods, method_key

    keys: list[str] = []
    for name in split_list(text, "--methods"):
        keys += [method.key for method in all_methods()] if name == "all" else [method_key(name)]
    return list(dict.fromkeys(keys))


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Raise an ``InputError`` that names the extra to install if a package is missing."""
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"this needs more packages: pip install 'srfca[{name}]' ({error})"
        ) from error


@contextmanager
def interruptible() -> Iterator[None]:
    """End with one line and exit code 130 on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        show_error("interrupted")
        raise typer.Exit(130) from None
