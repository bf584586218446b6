"""The answers that were considered, and how they do on held-out data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from srfca.report.charts.base import Figure, layer, values
from srfca.report.palette import BLUE, NONE
from srfca.report.sampling import short
from srfca.report.view import RunView


def considered_answers(view: RunView) -> Figure | None:
    """Draw the score of every answer that was considered; None if nothing was decided."""
    considered = view.note("considered")
    if not considered or len(considered) < 2:
        return None
    score = "accuracy" if all(c["accuracy"] is not None for c in considered) else "loss"
    chosen = (view.note("chosen"), view.note("variant") or "")
    lines = [
        {
            "answer": _name(c),
            "score": short(c[score]),
            "text": (f"{c[score]:.1%}" if score == "accuracy" else f"{c[score]:.4g}")
            + ("\nchosen" if (c["name"], c["variant"]) == chosen else ""),
            "color": BLUE if (c["name"], c["variant"]) == chosen else NONE,
        }
        for c in considered
    ]
    best_first = sorted(considered, key=lambda c: c[score], reverse=score == "accuracy")
    order = alt.Scale(domain=[_name(c) for c in best_first])
    largest = max(c[score] for c in considered)
    room = alt.Scale(domain=[0, 1.32 * largest or 1.0], nice=False)  # for texts beside the bars
    axis = alt.Axis(tickCount=5, labelOverlap=True)
    if score == "accuracy":
        axis = alt.Axis(format=".0%", values=[part / 5 for part in range(6)], labelOverlap=True)
    base = alt.Chart(values(lines)).encode(
        y=alt.Y(
            "answer:N",
            scale=order,
            title=None,
            axis=alt.Axis(labelLimit=330, labelExpr="split(datum.label, ', ')"),
        ),
        x=alt.X("score:Q", title=f"held-out {score}", axis=axis, scale=room),
        tooltip=[alt.Tooltip("answer:N"), alt.Tooltip("text:N", title=score)],
    )
    bars = base.mark_bar(height={"band": 0.6}).encode(color=alt.Color("color:N", scale=None))
    chart = layer(bars, *(_texts(base, is_chosen) for is_chosen in (False, True)))
    caption = (
        "What the clients' held-out data say about every answer that was considered. The one that "
        "was chosen is marked."
    )
    return Figure(
        "answers",
        "Which answer serves best",
        chart,
        caption,
        height=40 * len(lines),
        fields=("answer", "score"),
    )


def _texts(base: alt.Chart, is_chosen: bool) -> alt.Chart:
    """Return the texts beside the bars: of the chosen answer, two lines, or of all others."""
    chosen = base.transform_filter(f"(datum.color === '{BLUE}') === {str(is_chosen).lower()}")
    text = chosen.mark_text(
        align="left", dx=5, dy=-7 if is_chosen else 0, fontWeight="bold", lineBreak="\n"
    )
    chart: alt.Chart = text.encode(text="text:N")
    return chart


def _name(considered: Mapping[str, Any]) -> str:
    """Return the name of an answer."""
    variant = considered["variant"]
    return f"{considered['name']}, {variant}" if variant else str(considered["name"])
