"""What differs between clusters: how common classes are, and the layers of their models."""

from __future__ import annotations

import altair as alt

from srfca.report.charts.base import Figure, layer, values
from srfca.report.palette import BLUE
from srfca.report.sampling import short
from srfca.report.view import RunView

MAX_CLASSES = 62
MAX_CLUSTERS = 40
MAX_LAYERS = 15
CELL_TEXT = 12
"""Most classes whose shares are written into their cells."""


def class_shares(view: RunView) -> Figure | None:
    """Draw how common each class is in each cluster; None if there are no classes."""
    differences = None if view.analysis is None else view.analysis.differences
    if differences is None:
        return None
    every = [part for part in differences.by_cluster if part.class_shares]
    if not every:
        return None
    parts = every[:MAX_CLUSTERS]
    lines = [
        {
            "cluster": str(part.cluster), "class": name, "share": short(share),
            "others": short(other), "text": f"{100 * share:.0f}",
        }
        for part in parts
        for name, share, other in list(
            zip(part.class_names, part.class_shares, part.other_shares, strict=True)
        )[:MAX_CLASSES]
    ]  # fmt: skip
    classes = list(dict.fromkeys(str(line["class"]) for line in lines))
    base = alt.Chart(values(lines)).encode(
        x=alt.X(
            "class:N", scale=alt.Scale(domain=classes), title="class",
            axis=alt.Axis(labelAngle=0 if len(classes) <= CELL_TEXT else -90, orient="top"),
        ),
        y=alt.Y(
            "cluster:N", scale=alt.Scale(domain=[str(part.cluster) for part in parts]),
            axis=alt.Axis(labelFontWeight="bold"),
        ),
        tooltip=[
            alt.Tooltip("cluster:N"), alt.Tooltip("class:N"), alt.Tooltip("share:Q", format=".1%"),
            alt.Tooltip("others:Q", title="share elsewhere", format=".1%"),
        ],
    )  # fmt: skip
    cells = base.mark_rect(stroke="white", strokeWidth=1).encode(
        color=alt.Color(
            "share:Q", scale=alt.Scale(scheme="blues", domainMin=0),
            legend=alt.Legend(
                title="share of samples", format=".0%", orient="bottom", direction="horizontal",
                gradientLength=200,
            ),
        )
    )  # fmt: skip
    layers: list[alt.Chart] = [cells]
    if len(classes) <= CELL_TEXT:
        half = max(float(line["share"] or 0) for line in lines) * 0.55
        color = alt.condition(f"datum.share > {half:.4f}", alt.value("white"), alt.value("#222222"))
        layers.append(base.mark_text(fontSize=11).encode(text="text:N", color=color))
    caption = "How common each class is among the samples of each cluster, in percent."
    if len(every) > len(parts):
        caption += f" The first {len(parts)} of {len(every):,} clusters are shown."
    if len(every[0].class_shares) > MAX_CLASSES:
        caption += f" The first {MAX_CLASSES} of {len(every[0].class_shares):,} classes are shown."
    return Figure(
        "classes", "Classes of each cluster", layer(*layers), caption, height=26 * len(parts),
        fields=("cluster", "class", "share", "others"),
    )  # fmt: skip


def layer_differences(view: RunView) -> Figure | None:
    """Draw which layers of the clusters' models differ most; None if that is unknown."""
    differences = None if view.analysis is None else view.analysis.differences
    if differences is None or len(differences.layers) < 2:
        return None
    lines = [
        {"layer": part.name, "difference": short(part.difference), "text": f"{part.difference:.2f}"}
        for part in differences.layers[:MAX_LAYERS]
    ]
    base = alt.Chart(values(lines)).encode(
        y=alt.Y(
            "layer:N", scale=alt.Scale(domain=[str(line["layer"]) for line in lines]), title=None,
            axis=alt.Axis(labelLimit=170),
        ),
        x=alt.X(
            "difference:Q", title="difference, relative to training", axis=alt.Axis(tickCount=5)
        ),
        tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("difference:Q", format=".3~g")],
    )  # fmt: skip
    text = base.mark_text(align="left", dx=4).encode(text="text:N")
    chart = layer(base.mark_bar(color=BLUE, height={"band": 0.7}), text)
    caption = (
        "How far apart the clusters' parameters are in each layer, divided by how far training "
        "moved them. Layers that differ little could be shared."
    )
    return Figure(
        "layers", "Layers of the models", chart, caption, height=26 * len(lines),
        fields=("layer", "difference"),
    )  # fmt: skip
