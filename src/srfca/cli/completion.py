"""Names that the shell completes: of experiments and of methods.

They are read from the sources without importing them, because a shell cannot wait for torch.
"""

from __future__ import annotations

import re
from pathlib import Path

import srfca

_FOLDER = Path(srfca.__file__).parent
_KEY = r'(?m)^    key: ClassVar\[str\] = "([^"]+)"$'


def experiments(incomplete: str) -> list[str]:
    """Return the presets that begin with a text.

    >>> experiments("rotated-d")
    ['rotated-digits']
    """
    names = [path.stem for path in (_FOLDER / "experiments" / "presets").glob("*.toml")]
    return _beginning_with(incomplete, names)


def methods(incomplete: str) -> list[str]:
    """Return the keys of methods that begin with a text, also of installed packages.

    >>> methods("sr-")
    ['sr-fca', 'sr-fca-literal']
    """
    from importlib.metadata import entry_points

    sources = [path.read_text("utf-8") for path in (_FOLDER / "methods").rglob("*.py")]
    keys = [key for source in sources for key in re.findall(_KEY, source)]
    keys += [point.name for point in entry_points(group="srfca.methods")]
    return _beginning_with(incomplete, keys)


def method_list(incomplete: str) -> list[str]:
    """Return lists of methods whose last one is completed.

    >>> method_list("local,sr-")
    ['local,sr-fca', 'local,sr-fca-literal']
    """
    chosen, comma, last = incomplete.rpartition(",")
    return [chosen + comma + key for key in methods(last)]


def _beginning_with(incomplete: str, names: list[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
