"""What outputs mean: classes, values, probabilities, and means of several models."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from srfca import InputError
from srfca.models import MixtureModule, Signature
from srfca.models.prediction import BATCH, outputs_of
from srfca.models.signature import LossKind, dtype_named

SHAPES = st.lists(st.integers(0, 9), max_size=3).map(tuple)


@given(SHAPES, SHAPES, st.booleans(), st.sampled_from(["cross_entropy", "squared_error", "custom"]))
def test_a_signature_is_the_same_after_json(
    inputs: tuple[int, ...], targets: tuple[int, ...], has_classes: bool, loss: LossKind
) -> None:
    signature = Signature(inputs, "float64", targets, has_classes, loss)
    assert Signature.from_json(json.loads(json.dumps(signature.to_json()))) == signature


def test_a_damaged_signature_is_refused() -> None:
    content = Signature((3,), "float32", (), True, "cross_entropy").to_json()
    for key, value in (
        ("input_shape", [-1]),
        ("input_shape", "ab"),
        ("target_shape", None),
        ("has_classes", 1),
        ("loss", "hinge"),
        ("input_dtype", "nn"),
        ("input_dtype", 3),
    ):
        with pytest.raises(InputError, match=r"damaged|not a type"):
            Signature.from_json(content | {key: value})
    del content["loss"]
    with pytest.raises(InputError, match=r"damaged: KeyError\('loss'\)"):
        Signature.from_json(content)


def test_predictions_are_what_the_accuracy_counts() -> None:
    classes = Signature((3,), "float32", (), True, "cross_entropy")
    assert classes.predictions(torch.tensor([[1.0, 3.0, 2.0]])).tolist() == [1]
    assert classes.predictions(torch.tensor([[-1.0], [2.0]])).tolist() == [0, 1]
    assert classes.predictions(torch.tensor([0.5, -0.5])).tolist() == [1, 0]
    sequence = Signature((3,), "float32", (2,), True, "cross_entropy")
    outputs = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])  # [n, classes, 2]
    assert sequence.predictions(outputs).tolist() == [[0, 1]]
    strange = torch.zeros(2, 3, 4, 5)
    assert sequence.predictions(strange) is strange
    assert sequence.predictions(torch.zeros(2, 3, 4)).shape == (2, 3, 4)


def test_values_have_the_shape_of_the_targets() -> None:
    values = Signature((3,), "float32", (), False, "squared_error")
    assert values.predictions(torch.tensor([[1.5], [2.5]])).tolist() == [1.5, 2.5]
    several = Signature((3,), "float32", (2, 1), False, "custom")
    assert several.predictions(torch.zeros(4, 2)).shape == (4, 2, 1)
    assert several.predictions(torch.zeros(4, 3)).shape == (4, 3)
    with pytest.raises(InputError, match=r"probabilities need a model.*cross entropy"):
        values.probabilities(torch.zeros(2, 1))


def test_unknown_types_are_refused() -> None:
    assert dtype_named("int64") == torch.int64
    with pytest.raises(InputError, match="'Tensor' is not a type of tensors"):
        dtype_named("Tensor")


class Constant(nn.Module):
    def __init__(self, outputs: list[float]) -> None:
        super().__init__()
        self.outputs = nn.Parameter(torch.tensor(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outputs.expand(len(x), -1)


def test_a_mixture_averages_probabilities_or_outputs() -> None:
    models, weights = [Constant([0.0, 1.0]), Constant([2.0, 0.0])], torch.tensor([0.25, 0.75])
    x = torch.zeros(3, 1)
    shares = [torch.tensor(m.outputs.tolist()).softmax(0) for m in models]
    expected = 0.25 * shares[0] + 0.75 * shares[1]
    outputs = MixtureModule(models, weights, averages_probabilities=True)(x)
    torch.testing.assert_close(outputs.softmax(1), expected.expand(3, -1))
    torch.testing.assert_close(outputs.exp(), expected.expand(3, -1))
    values = MixtureModule(models, weights, averages_probabilities=False)(x)
    torch.testing.assert_close(values, torch.tensor([[1.5, 0.25]]).expand(3, -1))
    alone = MixtureModule(models, torch.tensor([0.0, 1.0]), averages_probabilities=True)(x)
    torch.testing.assert_close(alone.exp(), shares[1].expand(3, -1))


def test_outputs_are_computed_in_parts() -> None:
    signature = Signature((2,), "float64", (), False, "squared_error")
    module = nn.Linear(2, 1).double()
    x = torch.randn(2 * BATCH + 3, 2)
    with torch.no_grad():
        torch.testing.assert_close(outputs_of(module, x, signature), module(x.double()))
    assert outputs_of(module, x.numpy(), signature).dtype == torch.float64


def test_inputs_that_a_model_does_not_take_are_refused() -> None:
    signature, module = Signature((2,), "float32", (), False, "squared_error"), nn.Linear(2, 1)
    for x, message in (
        (torch.zeros(0, 2), "there are no samples to predict"),
        (torch.tensor(1.0), "there are no samples to predict"),
        (torch.tensor([[1.0, torch.nan]]), "x has a NaN or an infinity"),
        (torch.zeros(4, 3), r"samples of shape \(3,\): it was trained on samples of shape \(2,\)"),
    ):
        with pytest.raises(InputError, match=message):
            outputs_of(module, x, signature)
    text = Signature((5,), "int64", (), True, "cross_entropy")
    with pytest.raises(InputError, match=r"x must be whole numbers \(int64\).*not float32"):
        outputs_of(nn.Embedding(4, 2), torch.zeros(1, 5), text)
    with pytest.raises(InputError, match="does not take x"):
        outputs_of(nn.Embedding(4, 2), torch.full((1, 5), 9), text)
