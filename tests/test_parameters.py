"""Parameters of dataclasses: ranges, types and choices are declared once, beside the field."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srfca import FedAvg, InputError, LocalTraining
from srfca.parameters import Constraint, check_parameters, choices, constrained


@dataclass(frozen=True)
class Options:
    k: int = constrained(2, at_least=1)
    rate: float | None = constrained(None, more_than=0, at_most=1)
    trim: float = constrained(0.0, at_least=0, less_than=0.5)
    exchange: Literal["models", "gradients"] = "models"
    start: Literal["random", "clients"] | np.ndarray = "random"
    threshold: float | str = "auto"
    radius: float | Literal["auto"] = constrained("auto", more_than=0)
    weighted: bool = True
    name: str | None = None
    local: LocalTraining = field(default_factory=LocalTraining)

    def __post_init__(self) -> None:
        check_parameters(self)


@pytest.mark.parametrize(
    "values",
    [
        {"k": 1}, {"k": np.int64(3)}, {"rate": None}, {"rate": 1}, {"rate": 0.5}, {"trim": 0},
        {"exchange": "gradients"}, {"start": np.zeros(2)}, {"threshold": "30%"}, {"threshold": 2},
        {"radius": 0.5}, {"radius": "auto"},
        {"weighted": False}, {"name": "x"}, {"name": None},
    ],
)  # fmt: skip
def test_allowed_values_are_accepted(values: dict[str, Any]) -> None:
    Options(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"k": 0}, "k must be at least 1, not 0"),
        ({"k": None}, "k must be an integer, not None"),
        ({"k": 2.5}, r"k must be an integer, not 2\.5"),
        ({"k": 2.0}, r"k must be an integer, not 2\.0"),
        ({"k": "two"}, "k must be an integer, not 'two'"),
        ({"k": True}, "k must be an integer, not True"),
        ({"rate": 0.0}, r"rate must be in \(0, 1\] or None, not 0.0"),
        ({"rate": float("nan")}, r"rate must be in \(0, 1\] or None, not nan"),
        ({"rate": [1]}, r"rate must be a number or None, not \[1\]"),
        ({"trim": 0.5}, r"trim must be in \[0, 0.5\), not 0.5"),
        ({"exchange": "model"}, "unknown exchange 'model': did you mean 'models'"),
        ({"exchange": None}, "unknown exchange 'None': choose from models, gradients"),
        ({"start": "client"}, "unknown start 'client': did you mean 'clients'"),
        ({"start": 3}, "unknown start '3'"),
        ({"radius": "30%"}, "radius must be a number or 'auto', not '30%'"),
        ({"radius": 0}, "radius must be positive or 'auto', not 0"),
        ({"weighted": "yes"}, "weighted must be True or False, not 'yes'"),
        ({"weighted": None}, "weighted must be True or False, not None"),
        ({"k": 10**400}, r"k must be a number below 2e\+308"),
        ({"k": -(10**5000)}, r"k must be a number below 2e\+308"),
        ({"rate": Fraction(10**400)}, r"rate must be a number below 2e\+308"),
        ({"name": 3}, "name must be a str or None, not 3"),
        ({"local": {"lr": 1}}, "local must be a LocalTraining, not {'lr': 1}"),
    ],
)
def test_wrong_values_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Options(**values)


@given(st.floats(-3, 3), st.floats(-2, 0), st.floats(0, 2))
def test_a_constraint_is_an_interval(value: float, low: float, high: float) -> None:
    assert Constraint(at_least=low, at_most=high).allows(value) == (low <= value <= high)
    assert Constraint(more_than=low, less_than=high).allows(value) == (low < value < high)


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (Constraint(at_least=1), "at least 1"),
        (Constraint(more_than=0), "positive"),
        (Constraint(more_than=2), "more than 2"),
        (Constraint(at_most=3), "at most 3"),
        (Constraint(less_than=3), "less than 3"),
        (Constraint(at_least=0, less_than=0.5), "in [0, 0.5)"),
        (Constraint(more_than=0, at_most=1), "in (0, 1]"),
    ],
)
def test_a_constraint_describes_itself(constraint: Constraint, text: str) -> None:
    assert str(constraint) == text


def test_choices_are_those_of_literals() -> None:
    assert choices(Literal["a", "b"] | int) == ("a", "b")
    assert choices(int) == ()


def test_methods_and_local_training_use_them() -> None:
    with pytest.raises(InputError, match=r"participation must be in \(0, 1\], not 2"):
        FedAvg(participation=2)
    with pytest.raises(InputError, match="local must be a LocalTraining, not None"):
        FedAvg(local=None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown optimizer 'adan': did you mean 'adam'"):
        LocalTraining(optimizer="adan")  # type: ignore[arg-type]
