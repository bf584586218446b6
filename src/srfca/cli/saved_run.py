"""Options of commands that use a saved run, and its result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from srfca.methods import Result

SavedRun = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="The --out of 'srfca run', or a run in that of 'srfca compare': runs/sr-fca-seed0.",
    ),
]
Factory = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODULE:FACTORY",
        help="What makes the module, where the run could not save its name.",
    ),
]


def load_result(run: Path, model: str | None) -> Result:
    """Load the result of a run.

    Args:
        run: The run, as ``srfca.experiments.saved.find`` takes it.
        model: ``MODULE:FACTORY`` of what makes the module, or None for what the run names.

    Raises:
        InputError: If there is no such run, it is damaged, or the model is another one.
    """
    from srfca.experiments.saved import find
    from srfca.experiments.user_model import import_model
    from srfca.methods import Result

    return Result.load(find(run), None if model is None else import_model(model))
