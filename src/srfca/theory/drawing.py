"""Figures of the theory as files; needs matplotlib."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import NullLocator

from srfca.theory.measurements import Figure, Panel

_COLORS = ("#1b7f5c", "#c2571a", "#3b6fb6", "#8a8f98", "#7a4fa3")


def draw(figure: Figure, path: Path) -> None:
    """Draw a figure as a file, measurements as lines and bounds dashed."""
    count = len(figure.panels)
    canvas = Canvas(figsize=(4.2 * count if count > 1 else 5.6, 3.6), layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.subplots(1, count, squeeze=False)[0]
    for axis, panel in zip(axes, figure.panels, strict=True):
        _draw_panel(axis, panel)
    canvas.savefig(path, dpi=110)


def _draw_panel(axis: Axes, panel: Panel) -> None:
    for color, curve in zip(_COLORS, panel.curves, strict=False):
        points = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if y > 0 or not panel.log_y]
        style = "--" if curve.bound else "o-"
        xs, ys = [x for x, _ in points], [y for _, y in points]
        axis.plot(xs, ys, style, color=color, label=curve.name, markersize=4)
    if panel.log_x:
        axis.set_xscale("log")
        ticks = panel.curves[0].x[::2]
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.xaxis.set_minor_locator(NullLocator())
    if panel.log_y:
        axis.set_yscale("log")
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.x)
    axis.set_ylabel(panel.y)
    axis.legend(fontsize=7)
    axis.spines[["top", "right"]].set_visible(False)
