"""Charts as files for papers and slides: PNG, SVG, PDF, and the specification as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import vl_convert

from srfca.errors import require
from srfca.files import replace_file, writable_folder
from srfca.report.charts.base import Figure
from srfca.report.charts.theme import PAPER

SCALE = 3
"""Pixels of a PNG for each of the chart."""


def _png(spec: dict[str, Any]) -> bytes:
    return vl_convert.vegalite_to_png(spec, scale=SCALE)


def _svg(spec: dict[str, Any]) -> bytes:
    return vl_convert.vegalite_to_svg(spec).encode()


def _pdf(spec: dict[str, Any]) -> bytes:
    return vl_convert.vegalite_to_pdf(spec)


FORMATS: dict[str, Callable[[dict[str, Any]], bytes]] = {".png": _png, ".svg": _svg, ".pdf": _pdf}
"""Functions that draw a specification, by the ending of a file's name."""


def check_path(path: Path) -> None:
    """Check that a chart can be written to this file.

    Raises:
        InputError: If its name ends with no known format, or it cannot be written.
    """
    require(
        path.suffix in FORMATS,
        f"{path}: the name of a figure must end with {', '.join(FORMATS)}",
    )
    require(not path.is_dir(), f"{path} is a folder")
    writable_folder(path.parent)


def write_figure(figure: Figure, path: Path, width: int | None = None) -> Path:
    """Write a chart in the format of the file's name, on white, with vector text where possible.

    Args:
        figure: The chart.
        path: The file.
        width: Width of the chart without its axes, in pixels; None is the chart's own.

    Returns:
        The file.

    Raises:
        InputError: If its name ends with no known format, or it cannot be written.
    """
    check_path(path)
    chart = figure.sized()
    if width is not None:
        height = width if figure.square else figure.height
        chart = chart.properties(width=width, height=height)
    replace_file(path, FORMATS[path.suffix](chart.to_dict() | {"config": PAPER}))
    return path
