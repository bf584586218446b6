"""Augmentation against slow loops over images, and where a simulation applies it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from srfca import InputError, Simulation
from srfca.engine.augment import (
    AUGMENTATIONS,
    Augmentation,
    augmentation_named,
    cifar,
    cutout,
    flip,
    handwriting,
    shift,
)
from srfca.experiments import config
from srfca.federation import LocalTraining
from srfca.models import ResNet9, mlp
from srfca.random import Key, bits, client_words, streams, uniform
from srfca.testing import ReferenceFederation
from tests import examples
from tests.asking import gradients, losses, scores, train


def images(c: int, b: int, h: int = 9, w: int = 11, seed: int = 0) -> Tensor:
    return torch.randn(c, b, 2, h, w, generator=torch.Generator().manual_seed(seed)) + 10


def streams_of(c: int, seed: int = 0) -> Tensor:
    return streams(Key(seed, "augment"), client_words([str(i) for i in range(c)]))


def number(stream: Tensor, position: int) -> int:
    """The number at a position of one stream, without its sign."""
    return int(bits(stream, 1, start=position)) & (2**63 - 1)


def flipped(image: Tensor, stream: Tensor, position: int) -> Tensor:
    if number(stream, position) % 2 == 0:
        return image
    return torch.stack([image[:, :, -1 - j] for j in range(image.shape[2])], dim=2)


def shifted(image: Tensor, stream: Tensor, position: int) -> Tensor:
    of_rows, of_columns = bits(stream, 2)
    top = 8 - number(of_rows, position) % 9
    left = 8 - number(of_columns, position) % 9
    padded = functional.pad(image.unsqueeze(0), (4, 4, 4, 4), mode="reflect")[0]
    return padded[:, top : top + image.shape[1], left : left + image.shape[2]]


def cut(image: Tensor, stream: Tensor, position: int) -> Tensor:
    of_rows, of_columns = bits(stream, 2)
    top = number(of_rows, position) % (image.shape[1] - 7)
    left = number(of_columns, position) % (image.shape[2] - 7)
    image = image.clone()
    for i in range(top, top + 8):
        for j in range(left, left + 8):
            image[:, i, j] = 0
    return image


def all_three(image: Tensor, stream: Tensor, position: int) -> Tensor:
    for change, draws in zip((flipped, shifted, cut), bits(stream, 3), strict=True):
        image = change(image, draws, position)
    return image


REFERENCES: dict[Augmentation, Callable[[Tensor, Tensor, int], Tensor]] = {
    flip: flipped,
    shift: shifted,
    cutout: cut,
    cifar: all_three,
}


@pytest.mark.parametrize("augment", REFERENCES, ids=lambda augment: augment.__name__)
@settings(max_examples=20, deadline=None)
@given(c=st.integers(1, 4), b=st.integers(1, 6), h=st.integers(8, 12), seed=st.integers(0, 2**31))
def test_each_image_agrees_with_the_slow_loop(
    augment: Augmentation, c: int, b: int, h: int, seed: int
) -> None:
    x, draws = images(c, b, h, seed=seed), streams_of(c, seed)
    before = x.clone()
    augmented = augment(x, draws)
    assert torch.equal(x, before), "the clients' images must not change"
    for client in range(c):
        for position in range(b):
            expected = REFERENCES[augment](x[client, position], draws[client], position)
            assert torch.equal(augmented[client, position], expected)


@pytest.mark.parametrize("augment", REFERENCES, ids=lambda augment: augment.__name__)
def test_a_client_alone_and_with_fewer_images_draws_the_same(augment: Augmentation) -> None:
    x, draws = images(5, 7), streams_of(5)
    together = augment(x, draws)
    assert torch.equal(augment(x[3:4, :4], draws[3:4]), together[3:4, :4])


def warped(image: Tensor, stream: Tensor, position: int) -> Tensor:
    """Pixel by pixel: where it comes from, and the mean of the four pixels around that place."""
    limits = 0.2, 0.15, 0.2, 0.1, 0.1
    draws = [float(uniform(part, position + 2)[position]) for part in bits(stream, 5)]
    angle, scale, shear, down, right = (
        limit * (2 * draw - 1) for limit, draw in zip(limits, draws, strict=True)
    )
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = (1 + scale) * rotation @ np.array([[1, shear], [0, 1]])
    _, h, w = image.shape
    out = torch.empty_like(image)
    for i in range(h):
        for j in range(w):
            x, y = matrix @ [(2 * j + 1) / w - 1, (2 * i + 1) / h - 1] + [right, down]
            column = min(max(((x + 1) * w - 1) / 2, 0), w - 1)
            row = min(max(((y + 1) * h - 1) / 2, 0), h - 1)
            left, top = int(column), int(row)
            a, b = row - top, column - left
            below, beside = min(top + 1, h - 1), min(left + 1, w - 1)
            out[:, i, j] = (1 - a) * ((1 - b) * image[:, top, left] + b * image[:, top, beside])
            out[:, i, j] += a * ((1 - b) * image[:, below, left] + b * image[:, below, beside])
    return out


@settings(max_examples=10, deadline=None)
@given(c=st.integers(1, 2), b=st.integers(1, 3), h=st.integers(5, 9), seed=st.integers(0, 2**31))
def test_handwriting_agrees_with_the_slow_loop(c: int, b: int, h: int, seed: int) -> None:
    x, draws = images(c, b, h, 7, seed=seed).double(), streams_of(c, seed)
    augmented = handwriting(x, draws)
    for client in range(c):
        for position in range(b):
            expected = warped(x[client, position], draws[client], position)
            torch.testing.assert_close(augmented[client, position], expected, rtol=0, atol=1e-5)


def test_handwriting_of_a_client_alone_and_with_fewer_images_is_the_same() -> None:
    x, draws = images(5, 7), streams_of(5)
    together = handwriting(x, draws)
    torch.testing.assert_close(handwriting(x[3:4, :4], draws[3:4]), together[3:4, :4])
    assert not torch.allclose(together, x)


def test_all_positions_are_equally_likely() -> None:
    x, draws = torch.ones(1, 9000, 1, 9, 10), streams_of(1)
    ramp = torch.arange(10.0).expand(1, 9000, 1, 9, 10)
    mirrored = (flip(ramp, draws)[..., 0, 0] == 9).sum()
    assert abs(int(mirrored) - 4500) < 240
    corner = shift(ramp + 10 * torch.arange(9.0).unsqueeze(-1), draws)[..., 4, 5].flatten()
    counts = corner.unique(return_counts=True)[1]
    assert len(counts) == 81
    assert float(((counts - 111.1) ** 2 / 111.1).sum()) < 140, "chi squared of 81 cells"
    holes = cutout(x, draws)[0, :, 0]
    assert bool(((holes == 0).flatten(1).sum(1) == 64).all())
    starts = (holes == 0).flatten(1).int().argmax(1).unique(return_counts=True)[1]
    assert len(starts) == 6
    assert int((starts - 1500).abs().max()) < 170


UNEQUAL = [7, 30, 12, 12, 5]
DATA = examples.classification(UNEQUAL, (2, 9, 9))


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 3))


@settings(max_examples=15, deadline=None)
@given(block=st.integers(1, 6), batch=st.integers(1, 14), seed=st.integers(0, 2**31))
def test_training_agrees_with_the_reference(block: int, batch: int, seed: int) -> None:
    model = examples.doubled(small)
    simulation = Simulation(DATA, model, augment="cifar", block_size=block)
    reference = ReferenceFederation(DATA, model, augment="cifar")
    local = LocalTraining(steps=5, local_steps=3, batch_size=batch, lr=0.1)
    rows = reference.initial_model(0).repeat(5, 1)
    for round in range(2):
        key = Key(seed, "augmented", round)
        expected = train(reference, range(5), rows, local, key)
        trained = train(simulation, range(5), rows, local, key)
        torch.testing.assert_close(trained, expected, rtol=1e-9, atol=1e-10)
        rows = expected


@pytest.mark.parametrize("block_size", [None, 1, 3])
def test_training_with_resampling_and_batch_norm_agrees_with_the_reference(
    block_size: int | None,
) -> None:
    data = examples.classification([8, 15, 8, 9], (3, 16, 16))
    model = examples.doubled(ResNet9(classes=3, width=2))
    simulation = Simulation(data, model, augment="cifar", block_size=block_size)
    reference = ReferenceFederation(data, model, augment="cifar")
    local = LocalTraining(steps=3, local_steps=3, batch_size=6, lr=0.05, resample=True)
    rows = reference.initial_model(0).repeat(4, 1)
    trained, expected = (
        train(f, range(4), rows, local, Key(0, "augmented")) for f in (simulation, reference)
    )
    torch.testing.assert_close(trained, expected, rtol=1e-9, atol=1e-10)


def test_only_training_is_augmented() -> None:
    plain, augmented = (Simulation(DATA, small, augment=name) for name in ("none", "cifar"))
    w = plain.initial_model(0).repeat(5, 1)
    local = LocalTraining(steps=2, local_steps=2, batch_size=4)
    both = plain, augmented
    assert not torch.equal(*(train(f, range(5), w, local, Key(0, "x")) for f in both))
    assert torch.equal(*(gradients(f, range(5), w) for f in both))
    for split in plain.splits:
        assert torch.equal(*(losses(f, range(5), w, split) for f in both))
        assert torch.equal(*(scores(f, range(5), w, split).loss for f in both))


def test_steps_rounds_and_clients_draw_differently() -> None:
    seen: list[Tensor] = []

    def record(x: Tensor, streams: Tensor) -> Tensor:
        seen.append(streams.clone())
        return x

    simulation = Simulation(DATA, small, augment=record, block_size=5)
    seen.clear()
    w = simulation.initial_model(0).repeat(5, 1)
    local = LocalTraining(steps=6, local_steps=3, batch_size=4)
    for round in range(2):
        train(simulation, range(5), w, local, Key(0, "x", round))
    drawn = torch.cat(seen)
    assert len(drawn.unique()) == len(drawn) == 5 * 6


def test_images_without_channels_are_augmented_like_those_with_one() -> None:
    local, key = LocalTraining(steps=3, batch_size=4), Key(1, "gray")
    results = []
    for shape in [(9, 9), (1, 9, 9)]:
        data = examples.classification([5, 6], shape)
        simulation = Simulation(data, mlp(81, 3), augment="handwriting")
        w = simulation.initial_model(0).repeat(2, 1)
        results.append(train(simulation, range(2), w, local, key))
    assert torch.equal(results[0], results[1])


def test_wrong_input_is_named() -> None:
    with pytest.raises(InputError, match=r"unknown augment 'cifra': did you mean 'cifar'"):
        Simulation(DATA, small, augment="cifra")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"shape \[h, w\] or \[channels, h, w\], not .* \(81,\)"):
        Simulation(examples.classification([5, 6], (81,)), mlp(81, 3), augment="cifar")
    with pytest.raises(InputError, match="cutout needs images of at least 8x8, not 7x9"):
        Simulation(examples.classification([5], (1, 7, 9)), mlp(63, 3), augment="cifar")
    with pytest.raises(InputError, match="shift needs images larger than 4x4, not 9x4"):
        Simulation(examples.classification([5], (1, 9, 4)), mlp(36, 3), augment=shift)
    with pytest.raises(InputError, match=r"augment must return images of shape \(1, 2, 2, 9, 9\)"):
        Simulation(DATA, small, augment=lambda x, streams: x[..., :8])


def test_an_experiment_may_set_the_augmentation() -> None:
    experiment = config.load("rotated-digits").set(["augment=cifar"])
    assert experiment.arguments("federation")["augment"] == "cifar"
    assert set(AUGMENTATIONS) == {"none", "cifar", "handwriting"}


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (len, "augment failed on two images, with TypeError"),
        (object, "augment failed on two images, with TypeError"),
        (lambda x, streams: 3, r"augment must return images of shape .* not 3"),
    ],
)
def test_a_function_that_is_no_augmentation_is_refused(augment: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        augmentation_named(augment, torch.rand(4, 1, 8, 8))
