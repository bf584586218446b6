"""The look of charts: on a light page, on a dark page, and on paper."""

from __future__ import annotations

from typing import Any

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def config(
    text: str, quiet: str, line: str, font: str = FONT, background: str = "transparent"
) -> dict[str, Any]:
    """Return the configuration of Vega-Lite.

    Args:
        text: Color of text.
        quiet: Color of titles of axes and of marks without a color.
        line: Color of grids.
        font: Its family.
        background: Color behind the chart.
    """
    labels = {"labelColor": quiet, "titleColor": text, "labelFontSize": 11, "titleFontSize": 12}
    return {
        "background": background,
        "font": font,
        "view": {"stroke": "transparent"},
        "axis": {
            **labels,
            "titleFontWeight": 500,
            "titlePadding": 8,
            "gridColor": line,
            "domainColor": line,
            "tickColor": line,
            "labelOverlap": "greedy",
        },
        "legend": {
            **labels,
            "titleFontWeight": 500,
            "symbolStrokeWidth": 1.5,
            "rowPadding": 4,
            "symbolBaseFillColor": quiet,
            "symbolBaseStrokeColor": quiet,
            "layout": {"top": {"direction": "vertical", "anchor": "start"}},
        },
        "text": {"color": text, "fontSize": 12},
        "rule": {"color": quiet},
        "point": {"color": text},
        "mark": {"color": quiet},
        "header": labels,
    }


LIGHT = config("#1b1f24", "#57606a", "#e3e6ea")
DARK = config("#e6e9ee", "#a3adb8", "#31373f")
PAPER = config("#000000", "#333333", "#dddddd", "Helvetica, Arial, sans-serif", "white")
