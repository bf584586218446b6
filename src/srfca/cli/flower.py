"""``srfca flower``: apps for real clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srfca.cli.options import interruptible


def new(
    folder: Annotated[Path, typer.Argument(help="A new folder, whose name is that of the app.")],
) -> None:
    """Write a Flower app that runs at once.

    Put your own data and model into it.
    """
    from srfca.apps import new_app
    from srfca.cli.console import show

    with interruptible():
        for path in new_app(folder):
            show(str(path))
    show(f"Run it: flwr run {folder} local --stream --federation-config num-supernodes=8")
