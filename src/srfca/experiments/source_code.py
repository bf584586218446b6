"""Digests of source code outside of srfca, so that a changed method or data set runs again."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any


def package_files(module: str) -> set[Path]:
    """Return all Python files of an imported module's top-level package, or the module's file."""
    package = sys.modules[module.partition(".")[0]]
    folders = getattr(package, "__path__", None)
    if folders is not None:
        return {path for folder in folders for path in Path(folder).rglob("*.py")}
    file = getattr(package, "__file__", None)
    return set() if file is None else {Path(file)}


def code_digest(component: Any) -> str:
    """Return a digest of the code of a class or function; empty for what srfca itself defines."""
    package = (getattr(component, "__module__", None) or "").partition(".")[0]
    return "" if package in ("srfca", "") else _package_digest(package)


def files_digest(paths: Iterable[Path]) -> str:
    """Return a digest of the contents of files."""
    digest = sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _package_digest(package: str) -> str:
    """Return the digest of a package; what this process has imported does not change any more."""
    return files_digest(package_files(package))
