"""What all charts share: their description, their size, and scales of clusters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

Data = Sequence[dict[str, Any]]
"""The lines of a chart's data."""
Drawing = alt.Chart | alt.LayerChart
LEGEND_SIZE = 12
"""Most clusters that a legend lists; more are labeled in the chart, or by a pointer."""


@dataclass(frozen=True)
class Figure:
    """A chart and what a person should know of it.

    Args:
        name: Name of the chart: ``srfca figure RUN NAME``.
        title: Its heading.
        chart: The chart, without a size.
        caption: What it shows and how to read it.
        height: In pixels.
        width: In pixels where it stands alone; a page makes it as wide as its column.
        square: Whether the page gives it the height of its width.
        canvas: Draw on a canvas: for very many marks.
        fields: Fields of the data, for a table of the numbers; none if there is no use for one.
    """

    name: str
    title: str
    chart: Drawing
    caption: str
    height: int = 300
    width: int = 560
    square: bool = False
    canvas: bool = False
    fields: tuple[str, ...] = ()

    def sized(self) -> Drawing:
        """Return the chart with its size and description, to be shown alone."""
        size = {"width": self.width, "height": self.width if self.square else self.height}
        return self.chart.properties(description=f"{self.title}. {self.caption}", **size)


def percent_axis(format: str = ".0%", **options: Any) -> alt.Axis:
    """Return an axis of shares: without ticks below 0 % and above 100 %, where none can be."""
    outside = "datum.value < -1e-9 || datum.value > 1 + 1e-9"
    opacity = {"condition": {"test": outside, "value": 0}, "value": 1}
    return alt.Axis(
        format=format,
        labelExpr=f"{outside} ? '' : datum.label",
        gridOpacity=opacity,
        tickOpacity=opacity,
        **options,
    )


def layer(*charts: Drawing) -> alt.LayerChart:
    """Return charts above each other, the first below."""
    return alt.LayerChart(layer=list(charts))


def values(lines: Iterable[dict[str, Any]]) -> alt.InlineData:
    """Return inline data of a chart."""
    return alt.InlineData(values=list(lines))
