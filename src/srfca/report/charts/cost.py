"""What each stage cost the clients."""

from __future__ import annotations

import altair as alt

from srfca.report.charts.base import Figure, layer, values
from srfca.report.palette import BLUE
from srfca.report.sampling import short
from srfca.report.view import RunView


def stage_costs(view: RunView) -> Figure | None:
    """Draw the local steps of each stage."""
    lines = [
        {
            "stage": stage.name,
            "steps": short(stage.budget.local_steps / view.num_clients, 6),
            "text": f"{stage.budget.local_steps / view.num_clients:,.4g}",
        }
        for stage in view.history
        if stage.budget.local_steps
    ]
    if len(lines) < 2:
        return None
    order = alt.Scale(domain=[str(line["stage"]) for line in lines])
    y = alt.Y("stage:N", scale=order, title=None, axis=alt.Axis(labelLimit=170))
    base = alt.Chart(values(lines)).encode(
        y=y,
        x=alt.X("steps:Q", title="local steps per client", axis=alt.Axis(tickCount=5)),
        tooltip=[alt.Tooltip("stage:N"), alt.Tooltip("steps:Q", format=",.5~g")],
    )
    text = base.mark_text(align="left", dx=4).encode(text="text:N")
    chart = layer(base.mark_bar(color=BLUE, height={"band": 0.7}), text)
    caption = "Local steps of each stage that trains, averaged over all clients."
    return Figure("cost", "Cost by stage", chart, caption, height=26 * len(lines))
