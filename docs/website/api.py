"""The pages of the API: one for each public module, from its docstrings."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from inspect import getdoc
from types import FunctionType, ModuleType

from srfca.methods import all_methods
from srfca.registry import Registry

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
FROM_SCIKIT_LEARN = (
    "get_metadata_routing", "set_fit_request", "set_predict_request", "set_predict_proba_request",
    "set_score_request",
)  # fmt: skip


def pages() -> dict[str, str]:
    """Return a page in Markdown for each public module, by its name."""
    documented: set[str] = set()
    return {module: page(module, documented) for module in (*MODULES, *SINGLE)}


def page(module: str, documented: set[str]) -> str:
    """Return the page of a module.

    Args:
        module: Its name.
        documented: What other pages have described; what this one describes is added.
    """
    text = f"# {module}\n\n"
    if module in SINGLE:
        names = [SINGLE[module]]
        text += "Only this name is public.\n\n"
    else:
        loaded = import_module(module)
        text += summary(loaded)
        names = [name for name in public_names(loaded) if where(loaded, name) not in documented]
        documented |= {where(loaded, name) for name in names}
    for name in names:
        text += entry(module, name)
    return text


def public_names(module: ModuleType) -> list[str]:
    """Return the public names of a module: ``__all__``, or what it defines itself."""
    if module.__name__ == "srfca.methods":
        own = [
            method.__name__ for method in all_methods() if method.__module__.startswith("srfca.")
        ]
        return [*module.__all__, *own]
    if hasattr(module, "__all__"):
        return list(module.__all__)
    names = (name for name in vars(module) if not name.startswith("_"))
    return [
        name for name in names if getattr(vars(module)[name], "__module__", "") == module.__name__
    ]


def where(module: ModuleType, name: str) -> str:
    """Return the full name of what a module offers: where it is defined."""
    value = getattr(module, name)
    if isinstance(value, type | FunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{module.__name__}.{name}"


def entry(module: str, name: str) -> str:
    """Return the section of a name."""
    value = getattr(import_module(module), name)
    if not isinstance(value, type | FunctionType):
        return f"## {name}\n\n{constant(value)}\n\n"
    kind = "class" if isinstance(value, type) else "function"
    options = [f".. auto{kind}:: {module}.{name}"]
    if kind == "class":
        options += ["   :members:", f"   :exclude-members: {', '.join(FROM_SCIKIT_LEARN)}"]
    return f"## {name}\n\n```{{eval-rst}}\n" + "\n".join(options) + "\n```\n\n"


def constant(value: object) -> str:
    """Return what is to say about a value that has no docstring of its own."""
    if isinstance(value, Mapping | Registry):
        return f"By name: {', '.join(f'`{key}`' for key in list(value.keys()))}."
    return f"A constant or a type: `{value}`."


def summary(module: ModuleType) -> str:
    """Return what a module says about itself, in Markdown."""
    return (getdoc(module) or "").replace("``", "`") + "\n\n"


def list_markdown() -> str:
    """Return the list of the pages, with a line about each."""
    lines = []
    for module in (*MODULES, *SINGLE):
        first = summary(import_module(module)).split("\n\n")[0].replace("\n", " ")
        lines.append(f"- [{module}](_generated/api/{module}.md): {first}\n")
    return "".join(lines)
