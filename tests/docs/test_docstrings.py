"""What docs/stability.md calls public is documented: arguments, results, errors, examples."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import srfca
import srfca.methods
from srfca.methods import METHODS

STABILITY = Path(__file__).resolve().parents[2] / "docs" / "stability.md"

EXAMPLES_ELSEWHERE = {
    # Plain records: the example of what makes them shows them.
    "srfca.analysis.ClusterDifference": "srfca.analysis.analyze",
    "srfca.analysis.Confidence": "srfca.analysis.analyze",
    "srfca.analysis.DecisionNotes": "srfca.analysis.analyze",
    "srfca.analysis.Differences": "srfca.analysis.analyze",
    "srfca.analysis.Fairness": "srfca.analysis.analyze",
    "srfca.analysis.FeatureDifference": "srfca.analysis.analyze",
    "srfca.analysis.LayerDifference": "srfca.analysis.analyze",
    "srfca.analysis.Reference": "srfca.analysis.train_reference",
    "srfca.analysis.SampleInput": "srfca.analysis.analyze",
    "srfca.analysis.Structure": "srfca.analysis.analyze",
    "srfca.methods.RoundEnd": "srfca.methods.Monitor",
    "srfca.methods.RunStart": "srfca.methods.Monitor",
    # A protocol that only engines implement: a local algorithm uses it.
    "srfca.federation.LocalClient": "srfca.federation.LocalAlgorithm",
}
"""Public classes without an example, and where one is."""


class Public(NamedTuple):
    """Something public, by the first name that it has."""

    name: str
    item: Any

    @property
    def doc(self) -> str:
        """Its own docstring: none of a base class, and not the one that dataclasses make."""
        doc = inspect.cleandoc(self.item.__doc__ or "")
        return "" if doc.startswith(f"{self.item.__name__}(") else doc


def public_parts() -> list[str]:
    """The modules and names in the table of what is public."""
    lines = STABILITY.read_text().splitlines()
    row = next(line for line in lines if line.startswith("| Python |"))
    return re.findall(r"`(srfca[\w.]*)`", row)


def members(part: str) -> Iterator[Public]:
    """The public members of a module, or the one that is named."""
    parent, _, name = part.rpartition(".")
    try:
        module = importlib.import_module(part)
    except ModuleNotFoundError as error:
        if error.name != part:
            raise
        yield Public(part, getattr(importlib.import_module(parent), name))
        return
    defined = [
        name
        for name, item in vars(module).items()
        if getattr(item, "__module__", None) == part and not name.startswith("_")
    ]
    for name in getattr(module, "__all__", defined):
        yield Public(f"{part}.{name}", getattr(module, name))


@cache
def everything_public() -> tuple[Public, ...]:
    """Each public function and class, once."""
    pytest.importorskip("flwr", reason="srfca.flower is public, and needs flwr")
    pytest.importorskip("ray", reason="srfca.ray is public, and needs Ray")
    methods = [Public(f"srfca.methods.{m.__name__}", m) for m in METHODS.items().values()]
    ours = [method for method in methods if method.item.__module__.startswith("srfca.")]
    items = [public for part in public_parts() for public in members(part)] + ours
    unique = {id(public.item): public for public in reversed(items)}
    return tuple(reversed(unique.values()))


def functions() -> list[Public]:
    return [public for public in everything_public() if inspect.isfunction(public.item)]


def classes() -> list[Public]:
    return [public for public in everything_public() if inspect.isclass(public.item)]


def methods_of(public: Public) -> Iterator[Public]:
    """The public methods of a class, without those that its bases document."""
    for name, item in vars(public.item).items():
        function = item.__func__ if isinstance(item, classmethod | staticmethod) else item
        inherited = any(name in vars(base) for base in public.item.__mro__[1:])
        if inspect.isfunction(function) and not name.startswith("_") and not inherited:
            yield Public(f"{public.name}.{name}", function)


def section(doc: str, name: str) -> str:
    """The text of a section such as ``Args``, empty if there is none."""
    found = re.search(rf"^{name}:\n((?:    .*\n?|\n)+)", doc, re.MULTILINE)
    return found.group(1) if found else ""


def documented_names(doc: str) -> set[str]:
    """The names that ``Args`` and ``Attributes`` describe."""
    text = section(doc, "Args") + section(doc, "Attributes")
    return set(re.findall(r"^    \*{0,2}(\w+): \S", text, re.MULTILINE))


def parameters_of(item: Callable[..., Any]) -> set[str]:
    names = inspect.signature(item).parameters
    return {name for name in names if name not in ("self", "cls") and not name.startswith("_")}


def raises(function: Callable[..., Any]) -> bool:
    """Whether the function itself raises an error, or requires something."""
    tree: ast.AST = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    nodes = list(ast.iter_child_nodes(tree))
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            checks = node.func.id.startswith("require") or node.func.id == "check_parameters"
            if checks:
                return True
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            nodes.extend(ast.iter_child_nodes(node))
    return False


def has_example(public: Public) -> bool:
    """Whether there is an example: one that runs, or a block of code that needs more than us."""
    return ">>> " in public.doc or "::\n" in section(public.doc, "Examples")


def is_imperative(doc: str) -> bool:
    verb = doc.split()[0]
    return bool(re.fullmatch("[A-Z][a-z]+", verb)) and not re.search("[^s]s$|^(The|An?)$", verb)


def is_array(annotation: str) -> bool:
    """Whether a type is that of one or several tensors or arrays."""
    container = re.match("(dict|Mapping|Callable)", annotation)
    return not container and bool(re.search(r"\b(Tensor|NDArray|ndarray)\b", annotation))


def problems_of_function(public: Public, brief: bool = False) -> Iterator[str]:
    """What is missing; if ``brief``, a first line that begins with "Return" needs no section."""
    if not public.doc:
        yield "no docstring"
        return
    if not is_imperative(public.doc):
        yield "the first line is not in the imperative"
    parameters, documented = parameters_of(public.item), documented_names(public.doc)
    if parameters != documented:
        yield f"Args: {sorted(parameters ^ documented)}"
    annotation = str(inspect.signature(public.item).return_annotation)
    results = section(public.doc, "Returns") + section(public.doc, "Yields")
    if brief and public.doc.startswith("Return"):
        results += public.doc
    if annotation not in ("None", "NoReturn") and not results:
        yield "no Returns"
    elif is_array(annotation) and "[" not in results:
        yield "Returns without shapes"
    if raises(public.item) and not section(public.doc, "Raises"):
        yield "no Raises"


def problems_of_class(public: Public) -> Iterator[str]:
    if not public.doc:
        yield "no docstring"
        return
    docs = [Public(base.__name__, base).doc for base in public.item.__mro__[:-1]]
    missing = constructor_parameters(public.item) - set().union(*map(documented_names, docs))
    if missing:
        yield f"Args: {sorted(missing)}"
    made_by = [vars(public.item).get(name) for name in ("__init__", "__post_init__")]
    ours = [make for make in made_by if make is not None and is_ours(make)]
    if any(map(raises, ours)) and not any(section(doc, "Raises") for doc in docs):
        yield "no Raises"


def is_ours(function: Callable[..., Any]) -> bool:
    """Whether the function is in a file of srfca, and not made by ``dataclass`` or ``typing``."""
    return Path(inspect.getfile(function)).is_relative_to(Path(srfca.__file__).parent)


def constructor_parameters(kind: type) -> set[str]:
    """The parameters that a user may give."""
    if issubclass(kind, BaseException) or getattr(kind, "_is_protocol", False):
        return set()
    return parameters_of(kind) - {"args", "kwargs"}


def require_none(problems: Mapping[str, Iterable[str]]) -> None:
    lines = [f"{name}: {problem}" for name, found in problems.items() for problem in found]
    if lines:
        pytest.fail("\n".join(lines))


def test_the_table_of_what_is_public_is_read() -> None:
    assert {"srfca", "srfca.sklearn", "srfca.threads.limit_spinning"} <= set(public_parts())
    names = {public.name for public in everything_public()}
    assert {"srfca.SRFCA", "srfca.methods.IFCA", "srfca.parameters.constrained"} <= names
    assert len(names) > 250


def test_functions_are_documented() -> None:
    require_none({public.name: problems_of_function(public) for public in functions()})


def test_classes_are_documented() -> None:
    require_none({public.name: problems_of_class(public) for public in classes()})


def test_methods_of_classes_are_documented() -> None:
    methods = [method for public in classes() for method in methods_of(public)]
    require_none({method.name: problems_of_function(method, brief=True) for method in methods})


def test_functions_and_classes_have_examples() -> None:
    with_example = {public.name for public in functions() if has_example(public)}
    for public in classes():
        if any(has_example(part) for part in (public, *methods_of(public))):
            with_example.add(public.name)
    missing = {public.name for public in (*functions(), *classes())} - with_example
    assert missing == set(EXAMPLES_ELSEWHERE)
    assert set(EXAMPLES_ELSEWHERE.values()) <= with_example


def test_methods_are_exported_by_the_names_of_their_classes() -> None:
    for method in METHODS.items().values():
        assert getattr(srfca.methods, method.__name__) is method
        assert method.__name__ in dir(srfca.methods)
