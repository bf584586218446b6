from __future__ import annotations

import pytest
import torch
from hypothesis import settings

settings.register_profile("srfca", deadline=None)
settings.load_profile("srfca")


@pytest.fixture(autouse=True)
def on_the_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """``device="auto"`` is the CPU, unless a test asks for the GPU."""
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
