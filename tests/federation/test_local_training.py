from __future__ import annotations

import pytest
import torch

from srfca import InputError
from srfca.federation import LocalTraining


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0), ("steps", 1e20), ("steps", float("inf")), ("steps", True),
        ("steps", torch.tensor(5)), ("local_steps", 0), ("batch_size", 0),
        ("optimizer", "adamm"), ("lr", 0.0),
        ("momentum", 1.0), ("weight_decay", -1.0), ("mu", -1.0), ("clip", 0.0),
        ("schedule", "cosinus"),
    ],
)  # fmt: skip
def test_values_that_are_not_allowed(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        LocalTraining(**{field: value})  # type: ignore[arg-type]


def test_momentum_is_for_sgd() -> None:
    with pytest.raises(InputError, match=r"momentum=0\.5 is for sgd, but the optimizer is adam"):
        LocalTraining(optimizer="adam", momentum=0.5)


def test_schedules() -> None:
    linear = LocalTraining(steps=4, lr=1.0, schedule="linear")
    assert [linear.rate(step) for step in range(4)] == [1, 0.75, 0.5, 0.25]
    step = LocalTraining(steps=4, lr=1.0, schedule="step")
    assert [step.rate(number) for number in range(4)] == pytest.approx([1, 1, 0.1, 0.01])
    cosine = LocalTraining(steps=4, lr=2.0, schedule="cosine")
    assert [cosine.rate(number) for number in (0, 2)] == pytest.approx([2, 1])


def test_the_last_round_may_be_shorter() -> None:
    local = LocalTraining(steps=7, local_steps=3)
    spans = [list(local.span(number)) for number in range(local.rounds)]
    assert spans == [[0, 1, 2], [3, 4, 5], [6]]
