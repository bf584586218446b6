"""The pages of the API: one for each public module, from its docstrings."""

from __future__ import annotations

from importlib import import_module
from inspect import getdoc

import srfca
from srfca.methods import all_methods

MODULES = (
    "srfca.aggregation",
    "srfca.aggregation.rules",
    "srfca.analysis",
    "srfca.callbacks",
    "srfca.clustering",
    "srfca.data",
    "srfca.data.partitioners",
    "srfca.data.transforms",
    "srfca.distances",
    "srfca.engine",
    "srfca.federation",
    "srfca.fitting",
    "srfca.flower",
    "srfca.methods",
    "srfca.methods.toolbox",
    "srfca.models",
    "srfca.sklearn",
    "srfca.testing",
    "srfca.theory",
)
"""Public modules whose names are documented (docs/stability.md)."""
SINGLE = {"srfca.parameters": "constrained", "srfca.threads": "limit_spinning"}
"""Modules of which one name is public."""
SEPARATOR = "\n\n"


def pages() -> dict[str, str]:
    """Return a page in Markdown for each public module, by its name."""
    return {module: page(module) for module in (*MODULES, *SINGLE)}


def page(module: str) -> str:
    """Return the page of a module."""
    if module in SINGLE:
        options = [f".. automodule:: {module}", f"   :members: {SINGLE[module]}"]
    else:
        options = [f".. automodule:: {module}", "   :members:", "   :show-inheritance:"]
    text = f"# {module}\n\n" + directive(options)
    if module == "srfca.methods":
        for method in all_methods():
            if method.__module__.startswith("srfca."):
                name = f"{method.__module__}.{method.__name__}"
                text += f"\n## {method.__name__}\n\n"
                text += directive([f".. autoclass:: {name}", "   :members:"])
    return text


def directive(lines: list[str]) -> str:
    """Return a block of reStructuredText in Markdown."""
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```\n"


def names_markdown() -> str:
    """Return a table of the names of ``srfca`` itself, and where each is described."""
    text = "| name | |\n|---|---|\n"
    for name in srfca.__all__:
        summary = (getdoc(getattr(srfca, name)) or "").split("\n\n")[0].replace("\n", " ")
        text += f"| `srfca.{name}` | {summary} |\n"
    return text


def is_public(module: str) -> bool:
    """Tell whether a module can be imported; those of missing extras cannot."""
    try:
        import_module(module)
    except ImportError:
        return False
    return True
