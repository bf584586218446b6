"""Conversion of settings to the types of parameters."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from srfca.errors import InputError
from srfca.experiments.parsing import parse

Schedule = Literal["constant", "linear", "cosine"]


def test_values_from_toml_are_converted_and_checked() -> None:
    assert parse(3, float, "x") == 3.0
    assert parse(True, bool, "x") is True
    assert parse([1, 2], tuple[int, ...], "x") == (1, 2)
    for value, kind in ((2.5, int), (True, int), (True, float), (1, bool)):
        with pytest.raises(InputError, match="x must be"):
            parse(value, kind, "x")


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ("linear", Schedule, "linear"),
        (" linear ", Schedule, "linear"),
        ("linear", Schedule | None, "linear"),
        ("none", Schedule | None, None),
        ("0.5", Schedule | float, 0.5),
        ("cosine", Schedule | float, "cosine"),
        ("anything", Schedule | str, "anything"),
    ],
)
def test_literal_types(value: str, annotation: Any, expected: Any) -> None:
    assert parse(value, annotation, "schedule") == expected


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        (
            "linaer",
            Schedule,
            "x must be one of constant, linear, cosine, not 'linaer': did you mean 'linear'?",
        ),
        ("zzz", Schedule, "x must be one of constant, linear, cosine, not 'zzz'"),
        (3, Schedule, "x must be one of constant, linear, cosine, not 3"),
        ("a", Literal["b"], "x must be 'b', not 'a'"),
        ("a", Schedule | float, "x must be a number or one of constant, linear, cosine, not 'a'"),
        ("a", Schedule | None, "x must be 'none' or one of constant, linear, cosine, not 'a'"),
    ],
)
def test_errors_of_literal_types_list_the_choices(
    value: Any, annotation: Any, message: str
) -> None:
    with pytest.raises(InputError) as raised:
        parse(value, annotation, "x")
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("value", "expected"), [("3", 3), ("0.5", 0.5), ("true", True), ("text", "text"), (7, 7)]
)
def test_without_an_annotation_the_looks_of_a_value_decide(value: Any, expected: Any) -> None:
    assert parse(value, Any, "x") == expected
