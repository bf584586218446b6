"""Digests of source code outside of srfca, so that a changed method or data set runs again."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any


def package_files(module: str) -> set[Path]:
    """Return the files of all imported modules that share a module's top-level package."""
    package = module.partition(".")[0]
    modules = [
        imported
        for imported in list(sys.modules.values())
        if getattr(imported, "__name__", "").partition(".")[0] == package
    ]
    paths = {Path(file) for found in modules if (file := getattr(found, "__file__", None))}
    return {path for path in paths if path.is_file()}


def code_digest(component: Any) -> str:
    """Return a digest of the code of a class or function; empty for what srfca itself defines."""
    module = getattr(component, "__module__", None) or ""
    if module.partition(".")[0] in ("srfca", ""):
        return ""
    return files_digest(package_files(module))


def files_digest(paths: Iterable[Path]) -> str:
    """Return a digest of the contents of files."""
    digest = sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()
