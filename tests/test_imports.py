"""Imports flow one way, and start fast."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import srfca

PACKAGE = Path(srfca.__file__).parent
LAYERS = [
    {"_version", "errors", "progress", "random", "threads"},
    {"docstrings", "files", "parameters", "registry"},
    {"json_files", "locks"},
    {"aggregation", "apps", "clustering", "models"},
    {"data", "federation", "theory"},
    {"distances", "engine"},
    {"methods", "ray"},
    {"analysis", "callbacks"},
    {"fitting", "report"},
    {"experiments", "sklearn", "testing"},
    {"watch"},
    {"flower"},
    {"cli"},
    {"__main__"},
]
"""Modules and packages; each imports those of earlier layers only."""

ROUNDS = {"replies.py", "requests.py", "rounds.py"}
"""The files of federations that speak of clusters: a ``Round`` has one model for each."""


FOR_PEOPLE = {"clustering/partition.py", "methods/_common/result.py"}
"""Files that, inside of methods, pass an object on to ``report``, to be shown to a person."""


def imports(path: Path) -> set[str]:
    """The modules of srfca that a file imports when it runs, at its top or inside a function."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "srfca":
            modules |= {f"srfca.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("srfca."):
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names if alias.name.startswith("srfca.")}
    return modules


def part_of(path: Path) -> str:
    """The module or package of the first level that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def level(part: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if part in layer)


def files(*parts: str) -> list[Path]:
    return [path for part in parts for path in sorted((PACKAGE / part).rglob("*.py"))]


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def test_every_part_is_in_one_layer() -> None:
    parts = {part_of(path) for path in SOURCES}
    assert sorted(parts) == sorted(part for layer in LAYERS for part in layer)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_flow_one_way(path: Path) -> None:
    part = part_of(path)
    shown = name_of(path) in FOR_PEOPLE
    for module in imports(path):
        imported = module.split(".")[1]
        if shown and imported == "report":
            continue
        assert imported == part or level(imported) < level(part), (
            f"{part} must not import {imported}"
        )


@pytest.mark.parametrize("name", sorted(FOR_PEOPLE))
def test_what_is_shown_to_people_is_imported_when_it_is_shown(name: str) -> None:
    tops = ast.parse((PACKAGE / name).read_text()).body
    modules = [node.module or "" for node in tops if isinstance(node, ast.ImportFrom)]
    assert not any(module.startswith("srfca.report") for module in modules)


@pytest.mark.parametrize("path", files("methods"), ids=name_of)
def test_methods_know_nothing_of_networks_and_simulations(path: Path) -> None:
    text = path.read_text()
    assert "torch.nn" not in text
    assert "import nn" not in text
    assert not any(module.startswith("srfca.engine") for module in imports(path))


@pytest.mark.parametrize("path", files("federation"), ids=name_of)
def test_federations_know_nothing_of_engines_and_data(path: Path) -> None:
    for module in imports(path):
        assert not module.startswith(("srfca.engine", "srfca.data", "srfca.clustering"))


@pytest.mark.parametrize("path", files("federation", "engine"), ids=name_of)
def test_federations_know_nothing_of_clusters_but_their_rounds(path: Path) -> None:
    text = path.read_text().lower()
    assert "clustering" not in text
    assert "partition" not in text
    assert "cluster" not in text or (path.parent.name == "federation" and path.name in ROUNDS)


@pytest.mark.parametrize("path", files("engine"), ids=name_of)
def test_the_engine_knows_nothing_of_methods_and_middleware(path: Path) -> None:
    for module in imports(path):
        assert not module.startswith(("srfca.methods", "srfca.federation.middleware"))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_nothing_needs_pytest(path: Path) -> None:
    names = {
        alias.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert not any(name.split(".")[0] in ("pytest", "hypothesis") for name in names)


HEAVY = (
    "altair", "datasets", "flwr", "jinja2", "matplotlib", "mlflow", "networkx", "numba", "onnx",
    "optuna", "pandas", "polars", "pyarrow", "ray", "rich", "sklearn", "starlette", "tensorboard",
    "typer", "uvicorn", "wandb",
)  # fmt: skip
"""Packages that are imported only when something needs them."""


def test_srfca_adds_little_to_the_import_of_torch() -> None:
    code = (
        "import sys, torch, torch.func; before = set(sys.modules)\n"
        "from srfca import SRFCA, Simulation, Result, cluster, data, models\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert "srfca.methods" in modules
    assert {module.split(".")[0] for module in modules}.isdisjoint(HEAVY)
    assert len(modules) < 600, "modules beside those of torch"


def test_everything_public_exists() -> None:
    for name in srfca.__all__:
        assert getattr(srfca, name) is not None
    assert set(srfca.__all__) <= set(dir(srfca))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        srfca.nothing  # noqa: B018


ARCHITECTURE = PACKAGE.parents[1] / "docs" / "architecture.md"


def test_the_diagram_of_the_documentation_shows_the_layers() -> None:
    _, _, rest = ARCHITECTURE.read_text("utf-8").partition("never from its own:\n\n```\n")
    lines = rest.partition("\n```")[0].splitlines()
    names = [re.split(r" {3,}", line)[0].split() for line in lines]
    drawn = [layer - {"_version"} for layer in LAYERS if layer != {"__main__"}]
    assert [set(line) for line in reversed(names)] == drawn
    assert all(line == sorted(line) for line in names)


def test_the_documentation_lists_all_folders_and_files_that_exist() -> None:
    _, _, rest = ARCHITECTURE.read_text("utf-8").partition("| folder of `src/srfca` |")
    rows = [line.split("|")[1:-1] for line in rest.partition("\n\n")[0].splitlines()[2:]]
    folders = [re.findall("`(.*?)/`", row[0]) for row in rows]
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == {name for line in folders for name in line if "/" not in name}
    for line, (_, *cells) in zip(folders, rows, strict=True):
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", " ".join(cells)):
            assert (PACKAGE / line[0] / name).exists(), f"{line[0]}/{name}"
