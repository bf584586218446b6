"""The pages of the API: one for each public module, from its docstrings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from inspect import getdoc
from pathlib import Path
from types import FunctionType, ModuleType

from srfca.methods import all_methods
from srfca.registry import Registry

STABILITY = Path(__file__).resolve().parents[1] / "stability.md"
FROM_SCIKIT_LEARN = (
    "get_metadata_routing", "set_fit_request", "set_predict_request", "set_predict_proba_request",
    "set_score_request",
)  # fmt: skip


def public_parts() -> list[str]:
    """Return the modules and names that docs/stability.md calls public."""
    lines = STABILITY.read_text("utf-8").splitlines()
    row = next(line for line in lines if line.startswith("| Python |"))
    return re.findall(r"`(srfca[\w.]*)`", row)


def modules() -> dict[str, str]:
    """Return the public modules, and the only public name of each; "" if the whole is public."""
    parts = {}
    for part in public_parts():
        parent, _, name = part.rpartition(".")
        in_package = parent == "" or hasattr(import_module(parent), "__path__")
        is_module = in_package and find_spec(part) is not None
        parts |= {part: ""} if is_module else {parent: name}
    return dict(sorted(parts.items()))


def pages() -> dict[str, str]:
    """Return a page in Markdown for each public module, by its name."""
    names = modules()
    documented: dict[str, str] = {}
    # What srfca exports is documented on the page of its own module, where that is public.
    in_order = [*(name for name in names if name != "srfca"), "srfca"]
    return {name: page(name, names[name], documented) for name in in_order}


def page(module: str, only: str, documented: dict[str, str]) -> str:
    """Return the page of a module.

    Args:
        module: Its name.
        only: Its only public name; "" if the whole module is public.
        documented: The pages of what other pages describe, by name; what this one describes is
            added.
    """
    text = f"# {module}\n\n"
    loaded = import_module(module)
    if only:
        return text + "Only this name is public.\n\n" + entry(module, only)
    text += summary(loaded)
    names = public_names(loaded)
    elsewhere = {
        name: documented[where(loaded, name)] for name in names if where(loaded, name) in documented
    }
    if elsewhere:
        text += "| name | described in |\n|---|---|\n"
        text += "".join(f"| `{name}` | [{home}]({home}.md) |\n" for name, home in elsewhere.items())
        text += "\n"
    for name in names:
        if name not in elsewhere:
            documented[where(loaded, name)] = module
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
    for module in modules():
        first = summary(import_module(module)).split("\n\n")[0].replace("\n", " ")
        lines.append(f"- [{module}](_generated/api/{module}.md): {first}\n")
    return "".join(lines)
