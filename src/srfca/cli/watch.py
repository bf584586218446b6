"""``srfca watch``: a run in a browser while it runs."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from srfca.cli.options import interruptible, needs_extra, whole_number


def watch(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="The --out of 'srfca run' or 'srfca compare', or a Flower server's srfca.out.",
        ),
    ],
    port: Annotated[
        int,
        typer.Option(
            metavar="N", parser=whole_number(0, 65535), help="Port of the page; 0 picks a free one."
        ),
    ] = 8765,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; any but the default is visible to other machines."
        ),
    ] = "127.0.0.1",
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = False,
) -> None:
    """Show a run in a browser while it runs.

    When it is done, the page is its report.
    """
    from srfca.cli.console import show

    with interruptible(), needs_extra("watch"):
        from srfca.watch.server import address, listen, serve
        from srfca.watch.source import Source

        source = Source(folder)
        with listen(host, port) as listening:
            url = address(listening)
            show(f"Watching {folder}: {url} (Ctrl-C ends it)")
            if open_browser:
                webbrowser.open(url)
            serve(source, listening)
