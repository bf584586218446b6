from __future__ import annotations

from tools import fuzz


def test_random_inputs_are_accepted_or_refused() -> None:
    counts, unexpected = fuzz.fuzz(300, seed=1)
    assert unexpected == []
    assert counts["accepted"] > 0
    assert counts["refused"] > 0
