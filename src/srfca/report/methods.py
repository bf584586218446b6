"""Tables of methods and data sets, read from the registries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from inspect import getdoc
from typing import Any, get_args, get_type_hints

from srfca.docstrings import arguments
from srfca.methods import Method, all_methods
from srfca.parameters import choices, constraint_of
from srfca.report.markdown import table_line


def summary_line(component: Any, code_mark: str = "") -> str:
    """Return the first paragraph of a docstring in one line.

    Args:
        component: What has the docstring.
        code_mark: What to put in place of the quotes of code.

    Examples:
        >>> from srfca.methods import METHODS
        >>> summary_line(METHODS["local"])
        'Train every client alone from the common start.'
    """
    paragraph = (getdoc(component) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", code_mark)


def short_citation(paper: str) -> str:
    """Return first author, venue and year of a reference "Authors: Title. Venue Year.".

    A text of another form is returned without changes.

    >>> short_citation("Ghosh, Chung: An Efficient Framework. NeurIPS 2020.")
    'Ghosh et al., NeurIPS 2020'
    >>> short_citation("Baseline without communication.")
    'Baseline without communication.'
    """
    authors, colon, _ = paper.partition(": ")
    year = re.search(r"((?:[A-Z]\w+ )*)((?:19|20)\d\d)\b", paper)
    if not colon or year is None:
        return paper
    first, *coauthors = authors.split(", ")
    return f"{first}{' et al.' if coauthors else ''}, {year[0]}"


def needs(method: type[Method]) -> str:
    """Return what a method must be given: "K", "truth" (the true clusters), or nothing."""
    return "K" if method.needs_k else "truth" if method.needs_truth else ""


def number_of_clusters(method: type[Method]) -> str:
    """Return how a method comes by the number of clusters; nothing if it has no clusters."""
    if method.needs_truth:
        return "needs the true clusters"
    return "given" if method.needs_k else "found" if method.clustered else ""


def methods_markdown(
    methods: Sequence[type[Method]] | None = None, pages: Mapping[str, str] | None = None
) -> str:
    """Return the table of methods for the documentation.

    Args:
        methods: The methods; None is all that srfca itself defines, without those of other
            packages.
        pages: The documentation page of each key that has one.
    """
    if methods is None:
        methods = [method for method in all_methods() if method.__module__.startswith("srfca.")]
    pages = pages or {}
    text = table_line(["key", "class", "family", "number of clusters", "what it does", "paper"])
    text += table_line(["---"] * 6)
    for method in methods:
        key = f"`{method.key}`"
        if method.key in pages:
            key = f"[{key}]({pages[method.key]})"
        cells = [key, f"`{method.__name__}`", method.family, number_of_clusters(method)]
        text += table_line([*cells, summary_line(method, "`"), method.paper])
    return text


def parameters_markdown(method: type[Method]) -> str:
    """Return the table of a method's parameters, without those that every method has."""
    texts, hints = arguments(method), get_type_hints(method)
    shared = {parameter.name for parameter in fields(Method)}
    text = table_line(["parameter", "default", "allowed", "meaning"]) + table_line(["---"] * 4)
    for parameter in fields(method):
        if parameter.name not in shared:
            allowed = _allowed(parameter, hints[parameter.name])
            meaning = texts[parameter.name].replace("``", "`")
            text += table_line([f"`{parameter.name}`", _default(parameter), allowed, meaning])
    return text


def _default(parameter: Field[Any]) -> str:
    if parameter.default is MISSING:
        return "required"
    default = parameter.default
    return f"`{default}`" if isinstance(default, str) else str(default)


def _allowed(parameter: Field[Any], annotation: Any) -> str:
    """Return the values that a parameter may have, as far as its declaration tells."""
    names = [f"`{name}`" for name in choices(annotation)]
    constraint = constraint_of(parameter)
    if constraint is not None:
        names.append(str(constraint))
    elif names and {int, float} & set(get_args(annotation)):
        names.append("a number")
    return ", ".join(names)
