"""Pages: one HTML file with everything in it, also the libraries that draw its charts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from srfca._version import __version__
from srfca.report.charts.base import Figure
from srfca.report.charts.theme import DARK, LIGHT

_ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class Section:
    """A part of a view.

    Args:
        id: Id of its element.
        title: Its heading.
        body: Its HTML.
    """

    id: str
    title: str
    body: Markup


@dataclass(frozen=True)
class View:
    """What a page shows at a time: a run, or a comparison.

    Args:
        id: Id of its element.
        title: In the list of views.
        sections: Its parts.
        charts: Specifications of its charts, by the ids of their elements.
        tables: Its tables of clients, by the ids of their elements.
    """

    id: str
    title: str
    sections: Sequence[Section]
    charts: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Any] = field(default_factory=dict)


@cache
def environment() -> Environment:
    """Return the templates; whatever is put into them is escaped."""
    return Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def macros(template: str) -> Any:
    """Return the macros of a template as functions."""
    return environment().get_template(template).module


def chart_data(figure: Figure) -> dict[str, Any]:
    """Return what the page's script needs to draw a chart."""
    description = f"{figure.title}. {figure.caption}"
    spec = figure.chart.properties(description=description).to_dict()
    del spec["config"]
    return {
        "spec": spec,
        "height": figure.height,
        "square": figure.square,
        "canvas": figure.canvas,
        "fields": figure.fields,
    }


@dataclass(frozen=True)
class LiveBox:
    """What a page shows above its views during a run.

    Args:
        key: Key of the views, which changes when they do.
        box: Its HTML.
    """

    key: str
    box: Markup


def page(views: Sequence[View], title: str, live: LiveBox | None = None) -> str:
    """Return a page.

    Args:
        views: What it shows; the first is shown first.
        title: Title of the page.
        live: What is above the views, if a server updates the page during a run.

    Returns:
        HTML that refers to no other file.
    """
    data = page_data(views)
    return environment().get_template("page.html").render(
        title=title,
        views=views,
        content=content(views),
        version=__version__,
        live=live,
        style=_asset("page.css"),
        script=_asset("page.js") + (_asset("live.js") if live else Markup()),
        data=as_json(data),
        bundle=_libraries(),
    )  # fmt: skip


def content(views: Sequence[View]) -> Markup:
    """Return the HTML of the views: all of the page that depends on the runs."""
    if not views:
        return Markup(macros("live.html").waiting())
    return Markup(environment().get_template("views.html").render(views=views))


def page_data(views: Sequence[View]) -> dict[str, Any]:
    """Return what the page's script needs of all views."""
    return {
        "charts": {name: chart for view in views for name, chart in view.charts.items()},
        "tables": {name: table for view in views for name, table in view.tables.items()},
        "themes": {"light": LIGHT, "dark": DARK},
    }


def as_json(content: Any) -> Markup:
    """Return JSON that can stand in a script element."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def _asset(name: str) -> Markup:
    return Markup((_ASSETS / name).read_text(encoding="utf-8"))


@cache
def _libraries() -> Markup:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", version)
    return Markup(bundle.replace("</script", "<\\/script"))
