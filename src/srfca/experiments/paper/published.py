"""Published figures of the paper's experiments."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

Published = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Figures by source (``v1``, ``TMLR``), experiment and row: a loss, or an accuracy in %."""


@cache
def published() -> Published:
    """Read the published figures.

    >>> published()["v1"]["rotated-mnist"]["sr-fca"]
    91.83
    """
    text = (files("srfca.experiments.paper") / "published.toml").read_text("utf-8")
    content: Published = tomllib.loads(text)
    return content
