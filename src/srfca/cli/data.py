"""``srfca data``: check and download data sets."""

from __future__ import annotations

from typing import Annotated

import typer

from srfca.cli.options import DataDir, interruptible


def check(data_dir: DataDir = None) -> None:
    """List the data sets that are on disk, and verify their files."""
    from srfca.cli import tables
    from srfca.cli.console import show
    from srfca.data.loaders.cache import data_folder
    from srfca.data.loaders.check import check as check_files

    folder = data_folder(data_dir)
    show(f"Data folder: {folder}")
    show(tables.files_table(check_files(folder)))


def get(
    name: Annotated[
        str, typer.Argument(help="mnist, fashion_mnist, cifar10, femnist or shakespeare.")
    ],
    data_dir: DataDir = None,
) -> None:
    """Download a data set from its publisher.

    A download that was interrupted is resumed.
    """
    from srfca.cli.progress import download_bars
    from srfca.data.loaders.download import get as download

    with interruptible(), download_bars() as progress:
        paths = download(name, data_dir, progress)
    for path in paths:
        typer.echo(str(path))
