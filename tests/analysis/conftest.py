"""A small federation of rotated digits, what SR-FCA finds in it, and its answer."""

from __future__ import annotations

import pytest

from srfca import SRFCA, Result, Simulation
from srfca.analysis import Analysis, analyze
from tests.methods.helpers import DIGITS, digits


@pytest.fixture(scope="session")
def federation() -> Simulation:
    return digits(num_clients=24, rotations=2, validation=0.2)


@pytest.fixture(scope="session")
def result(federation: Simulation) -> Result:
    result = SRFCA(local=DIGITS).fit(federation, seed=0)
    assert result.partition == federation.data.truth
    return result


@pytest.fixture(scope="session")
def analysis(result: Result, federation: Simulation) -> Analysis:
    return analyze(result, federation, input_shape=(8, 8))
