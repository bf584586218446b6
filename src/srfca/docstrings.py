"""What docstrings say about arguments: the Args section of Google's style."""

from __future__ import annotations

import inspect
import re


def arguments(component: type) -> dict[str, str]:
    """Return the text about each argument in a class's docstring, in one line.

    A docstring that names a base of the class, as in ``IFCA``, has the arguments of that base too.

    Args:
        component: The class.

    Examples:
        >>> from srfca.methods import FedProx
        >>> arguments(FedProx)["mu"]
        'Weight of the proximal term; that of ``local`` is not used. FedProx with 0 is FedAvg.'
    """
    text = component.__doc__ or ""
    bases = [base for base in component.__mro__[1:] if f"``{base.__name__}``" in text]
    inherited = {name: line for base in bases for name, line in _section(base).items()}
    return inherited | _section(component)


def _section(component: type) -> dict[str, str]:
    """Return the Args section of a docstring, without those of bases."""
    lines = (inspect.cleandoc(component.__doc__ or "") + "\n").splitlines()
    if "Args:" not in lines:
        return {}
    entries: dict[str, str] = {}
    name = ""
    for line in lines[lines.index("Args:") + 1 :]:
        if line and not line.startswith(" "):
            break
        if entry := re.match(r" {4}(\w+): (.*)", line):
            name, entries[entry[1]] = entry[1], entry[2]
        elif line:
            entries[name] += f" {line.strip()}"
    return entries
