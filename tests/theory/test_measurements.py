"""The figures of the theory, with little effort."""

from __future__ import annotations

import numpy as np
import pytest

from srfca.theory import Quadratics
from srfca.theory.measurements import FIGURES, Effort, error_rates
from srfca.theory.problem import Settings


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_measurements_bounds_and_words(name: str) -> None:
    figure = FIGURES[name](Effort(trials=20, points=3), 0)
    assert figure.name == name
    assert figure.sentences
    for panel in figure.panels:
        assert {curve.bound for curve in panel.curves} == {False, True}
        for curve in panel.curves:
            assert len(curve.x) == len(curve.y)
            assert np.isfinite(curve.y).all()
    again = FIGURES[name](Effort(trials=20, points=3), 0)
    assert [p.curves for p in again.panels] == [p.curves for p in figure.panels]


def test_errors_vanish_with_many_samples_and_refine_lowers_them() -> None:
    rng = np.random.default_rng(0)
    problem = Quadratics.make(clients=20, separation=1.0)
    rates = error_rates(problem, 100, Settings(), 60, rng, refine_steps=1)
    assert rates[0] > 0.5 > 0.2 > rates[1]
    assert error_rates(problem, 2000, Settings(), 20, rng) == [0.0]
