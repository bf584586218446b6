"""The bounds of the paper, by hand and by how they scale."""

from __future__ import annotations

import numpy as np
import pytest

from srfca import InputError
from srfca.theory import (
    cluster_model_bound,
    contraction,
    expected_kl,
    ifca_separation,
    intra_cluster_radius,
    margin,
    one_shot_bound,
    sr_fca_separation,
)


def test_the_margin_is_largest_in_the_middle() -> None:
    constants = {"mu": 1.0, "smoothness": 2.0, "diameter": 3.0, "steps": 100}
    values = [margin(threshold, 1.0, 3.0, **constants) for threshold in (1.5, 2.0, 2.5)]  # type: ignore[arg-type]
    assert values[1] == max(values)
    assert values[1] == pytest.approx(0.25, abs=1e-9), "mu/2 (eps2 - eps1) / 4 for many steps"


def test_the_bound_of_one_shot_by_hand() -> None:
    assert one_shot_bound(10, 4, 100, margin=0.2, lipschitz=5.0) == pytest.approx(
        40 * np.exp(-100 * 0.2 / (5 * 2))
    )
    assert one_shot_bound(10, 4, 100, 0.2, 5.0, b2=2.0) == pytest.approx(40 * np.exp(-4))


def test_other_bounds_by_hand() -> None:
    assert contraction(1.0, 4.0, 2) == pytest.approx(0.75)
    assert intra_cluster_radius(4.0, 0.5, 1.0) == 2.0
    assert expected_kl(4.0, 0.5) == 8.0
    assert sr_fca_separation(100, 20) == pytest.approx(np.log(20) / 100)
    assert ifca_separation(32, 1) == pytest.approx(0.5)
    assert ifca_separation(100, 1, alpha=0.01) > ifca_separation(100, 1)
    logarithm = np.sqrt(np.log(100 * 20 * 2 * 3))
    assert cluster_model_bound(100, 25, 20, 5, 0.1, 2.0, 3.0) == pytest.approx(
        2 * 5 / 0.8 * (0.01 + 0.02) * logarithm
    )


def test_wrong_constants_are_refused() -> None:
    with pytest.raises(InputError, match="0 < mu <= L"):
        contraction(2.0, 1.0, 3)
    with pytest.raises(InputError, match="beta"):
        cluster_model_bound(100, 25, 20, 5, 0.5, 2.0, 3.0)
