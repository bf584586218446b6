"""``srfca theory``: the paper's bounds beside what is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srfca.cli.options import Quick, Seed, interruptible, needs_extra


def theory(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="one_shot, refine, cluster_models, contraction, kl, separation; default: all."
        ),
    ] = None,
    seed: Seed = 0,
    quick: Quick = False,
    out: Annotated[
        Path | None, typer.Option(help="Draw the figures in this folder, as theory-NAME.png.")
    ] = None,
) -> None:
    """Measure what the paper's theory bounds.

    The problems are those whose constants are known.
    """
    from srfca.cli.console import show
    from srfca.errors import unknown
    from srfca.files import writable_folder
    from srfca.theory.measurements import FIGURES, Effort

    for name in names or []:
        if name not in FIGURES:
            raise unknown("figure", name, FIGURES)
    if out is not None:
        writable_folder(out)
        with needs_extra("figures"):
            from srfca.theory.drawing import draw
    with interruptible():
        for name in names or FIGURES:
            figure = FIGURES[name](Effort.quick() if quick else Effort(), seed)
            show(name, style="bold")
            for sentence in figure.sentences:
                show(f"- {sentence}")
            if out is not None:
                draw(figure, out / f"theory-{name}.png")
