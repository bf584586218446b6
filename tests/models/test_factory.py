"""Factories by name: what can be imported again, and what must not be called."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from srfca import InputError
from srfca.models import CNN, LSTM, Factory, LeNet5, ResNet9, WarmStart, linear, mlp
from srfca.models.factory import Model
from srfca.models.rows import Layout, make_module
from tests import examples


class Net(nn.Module):
    """Has an argument with a default."""

    def __init__(self, hidden: int = 3, bias: bool = True) -> None:
        super().__init__()
        self.layer = nn.Linear(2, hidden, bias)

    class Nested(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 1)


@dataclass(frozen=True)
class Sized:
    """Makes modules, as our networks do."""

    widths: tuple[tuple[int, int], ...] = ((2, 3), (3, 1))

    def __call__(self) -> nn.Module:
        return nn.Sequential(*(nn.Linear(*width) for width in self.widths))


by_variable: Callable[[], nn.Module] = lambda: nn.Linear(2, 2)  # noqa: E731


def with_argument(hidden: int = 3) -> nn.Module:
    return nn.Linear(2, hidden)


def saved(factory: Factory | None) -> Factory:
    """The factory after a round trip through JSON."""
    assert factory is not None
    return Factory(**json.loads(json.dumps(asdict(factory))))


NAMED: dict[str, tuple[Model, str]] = {
    "linear": (linear(3, 2, bias=False), "linear"),
    "mlp": (mlp(3, 5, 4, 2), "mlp"),
    "cnn": (CNN(classes=3, size=8, hidden=4), "cnn"),
    "lenet5": (LeNet5(size=12), "lenet5"),
    "resnet9": (ResNet9(width=2, norm="group"), "resnet9"),
    "lstm": (LSTM(symbols=5, embedding=2, hidden=3, layers=1), "lstm"),
    "class": (Net, "tests.models.test_factory:Net"),
    "nested class": (Net.Nested, "tests.models.test_factory:Net.Nested"),
    "partial of a class": (partial(Net, hidden=4, bias=False), "tests.models.test_factory:Net"),
    "dataclass": (Sized(((2, 2),)), "tests.models.test_factory:Sized"),
    "function": (examples.convolutional, "tests.examples:convolutional"),
    "lambda of a module": (by_variable, "tests.models.test_factory:by_variable"),
    "warm start": (WarmStart(mlp(3, 2), torch.ones(8)), "mlp"),
    "factory": (Factory("mlp", {"inputs": 3, "hidden": [], "outputs": 2}), "mlp"),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_model_with_a_name_is_made_again(case: str) -> None:
    model, name = NAMED[case]
    factory = saved(Factory.of(model))
    assert factory.name == name
    expected = Layout.of(make_module(model, seed=0))
    assert Layout.of(make_module(factory, seed=0)) == expected


@given(st.integers(1, 9), st.lists(st.integers(1, 9), max_size=3), st.integers(1, 9))
def test_networks_of_any_size_are_made_again(inputs: int, hidden: list[int], outputs: int) -> None:
    model = mlp(inputs, *hidden, outputs)
    made, again = make_module(model, seed=3), make_module(saved(Factory.of(model)), seed=3)
    layout = Layout.of(made)
    assert Layout.of(again) == layout
    assert torch.equal(layout.row(again), layout.row(made))


def test_a_model_without_a_name_has_no_factory() -> None:
    def local() -> nn.Module:
        return nn.Linear(2, 1)

    for model in (
        nn.Linear(2, 1),
        lambda: nn.Linear(2, 1),
        local,
        partial(with_argument, hidden=2),
        partial(Net, hidden=np.int64(2)),  # type: ignore[arg-type]  # not plain
        examples.doubled(linear(2)),
    ):
        assert Factory.of(model) is None


def test_what_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken_nets.py").write_text("raise OSError('no backbone')")
    for name, message in (
        ("missing_nets:Net", "there is no module 'missing_nets'"),
        ("broken_nets:Net", "importing 'broken_nets' failed: OSError: no backbone"),
        ("tests.examples:Nothing.Inside", "has no attribute 'Nothing.Inside'"),
    ):
        with pytest.raises(InputError, match=message):
            Factory(name)()


def test_only_networks_and_functions_without_arguments_are_called() -> None:
    for name, arguments in (
        ("os:abort", {}),
        ("os:system", {"command": "true"}),
        ("subprocess:Popen", {"args": ["true"]}),
        ("torch:load", {"f": "model.pt", "weights_only": False}),
        ("srfca.models:MODELS", {}),
    ):
        with pytest.raises(InputError, match="must be a network or a function without arguments"):
            Factory(name, arguments)()


def returns_a_number() -> int:
    return 3


def test_what_makes_no_module_is_refused() -> None:
    with pytest.raises(InputError, match="calling it failed: TypeError: 'int' object is not call"):
        Factory("tests.models.test_factory:returns_a_number")()
    with pytest.raises(InputError, match=r"calling it failed: TypeError.*unexpected keyword"):
        Factory("mlp", {"width": 3})()
