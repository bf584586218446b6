"""Imports flow one way, and start fast."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import srfca

PACKAGE = Path(srfca.__file__).parent
LAYERS = [
    {"_version", "errors"},
    {"files", "random", "ranks_triton", "threads"},
    {"clustering", "apps", "ranks"},
    {"data", "models", "aggregation"},
    {"federation"},
    {"distances"},
    {"methods"},
    {"experiments"},
    {"report", "flower"},
    {"console"},
    {"options"},
    {"cli"},
    {"__main__"},
]


def part_of(module: str) -> str:
    return module.split(".")[1]


def imports(path: Path) -> set[str]:
    """The parts of srfca that a file imports when it runs, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "srfca":
            found |= {f"srfca.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("srfca."):
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("srfca.")}
    return {part_of(name) for name in found}


def level(part: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if part in layer)


SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_flow_one_way(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for other in imports(path):
        assert other == own or level(other) < level(own), f"{own} must not import {other}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "methods").glob("*.py")), ids=lambda p: p.name)
def test_methods_know_nothing_of_networks(path: Path) -> None:
    text = path.read_text()
    assert "torch.nn" not in text
    assert "import nn" not in text
    assert "federation.simulation" not in text


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "federation").glob("*.py")), ids=lambda p: p.name
)
def test_federations_know_nothing_of_clusters(path: Path) -> None:
    assert "clustering" not in path.read_text()
    assert "partition" not in path.read_text().lower()


def test_srfca_adds_little_to_the_import_of_torch() -> None:
    code = (
        "import time, torch, torch.func; start = time.perf_counter()\n"
        "from srfca import SRFCA, Simulation, Result, cluster, data, models\n"
        "print(time.perf_counter() - start)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1.0, done.stdout


def test_everything_public_is_there() -> None:
    for name in srfca.__all__:
        assert getattr(srfca, name) is not None
    assert set(srfca.__all__) <= set(dir(srfca))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        srfca.nothing  # noqa: B018
