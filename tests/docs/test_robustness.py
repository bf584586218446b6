"""The code of docs/robustness.md."""

from __future__ import annotations

from typing import Any

import pytest

from srfca.errors import SrfcaWarning
from srfca.federation.middleware.attacks import ATTACKS
from tests.docs.markdown import code_blocks

PAGE = "docs/robustness.md"


def test_an_attack_of_ones_own() -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    with pytest.warns(SrfcaWarning, match="screened client .* that of another client"):
        exec(code_blocks(PAGE, "python")[0][1], namespace)
    assert len(namespace["attackers"]) == 2
    assert namespace["scores"].accuracy.shape == (12,)


def test_every_attack_is_described() -> None:
    with open(PAGE) as page:
        text = page.read()
    assert [name for name in ATTACKS if f"`{name}`" not in text] == []
