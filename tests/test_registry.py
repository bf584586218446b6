"""Registries: modules of a package, entry points of other packages, and MODULE:NAME."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from srfca.errors import InputError
from srfca.registry import Registry
from tests.cli.command import srfca


def install(folder: Path, name: str, group: str, entry_point: str, code: str) -> None:
    """Write a module and the metadata of an installed package with one entry point."""
    (folder / f"{name}.py").write_text(code)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{entry_point}\n")


def check(name: str, item: Any) -> int:
    if not isinstance(item, int):
        raise InputError(f"number {name!r} must be an int")
    return item


def numbers() -> Registry[int]:
    return Registry("number", "srfca.testing", "srfca.test_numbers", check)


def test_entry_points_add_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "registry_a", "srfca.test_numbers", "seven = registry_a:SEVEN", "SEVEN = 7")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = numbers()
    assert registry.keys() == ["seven"]
    assert registry["seven"] == registry["registry_a:SEVEN"] == 7
    assert "eight" not in registry
    with pytest.raises(InputError, match="unknown number 'sevn': did you mean 'seven'"):
        registry["sevn"]
    with pytest.raises(InputError, match="two numbers have the key 'seven'"):
        registry.add("seven", True)


@pytest.mark.parametrize(
    ("entry_point", "code", "message"),
    [
        ("seven = registry_b:SEVEN", "SEVEN = '7'", r"\(registry_b:SEVEN\): InputError: number"),
        ("seven = registry_b:EIGHT", "SEVEN = 7", r"\(registry_b:EIGHT\): AttributeError: "),
        ("seven = registry_b", "1 / 0", r"\(registry_b\): ZeroDivisionError: division by zero"),
    ],
)
def test_a_broken_package_is_a_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entry_point: str,
    code: str,
    message: str,
) -> None:
    install(tmp_path, "registry_b", "srfca.test_numbers", entry_point, code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "registry_b", raising=False)
    registry = numbers()
    with pytest.warns(UserWarning, match=f"number 'seven' of an installed package.*{message}"):
        assert registry.keys() == []


def test_the_command_line_warns_of_a_broken_package_in_one_line(tmp_path: Path) -> None:
    install(tmp_path, "registry_c", "srfca.methods", "mine = registry_c:Mine", "import no_such_one")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    done = srfca("list", env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert "| sr-fca " in done.stdout
    [line] = done.stderr.splitlines()
    assert line.startswith("srfca: warning: method 'mine' of an installed package cannot be used")
    assert "No module named 'no_such_one'" in line
