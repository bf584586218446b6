from __future__ import annotations

import numpy as np

from srfca.data.transforms import (
    RandomTransform,
    apply,
    compose,
    invert,
    label_noise,
    shift_labels,
    transpose,
    unchanged,
)
from srfca.data.transforms.base import split_at_random_part

X = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
Y = np.arange(3)
JITTER = RandomTransform(lambda x, y, rng: (x + rng.random(), y))


def test_transforms_are_applied_in_turn_and_nest() -> None:
    nested = compose(compose(invert, transpose), shift_labels(3))
    assert len(nested.transforms) == 3
    x, y = nested(X, Y)
    assert np.array_equal(x, np.swapaxes(255 - X, 1, 2))
    assert y.tolist() == [1, 2, 0]
    assert compose()(X, Y) == (X, Y)


def test_transforms_of_training_samples_leave_test_samples_unchanged() -> None:
    noisy = compose(shift_labels(3), label_noise(1.0, 3, splits="train"))
    train, test = (
        apply(noisy, X, Y, split=split, rng=np.random.default_rng(0))[1]
        for split in ("train", "test")
    )
    assert test.tolist() == [1, 2, 0]
    assert (train != test).all()


def test_random_numbers_come_from_the_generator() -> None:
    first, second, again = (
        apply(compose(JITTER), X, Y, split="test", rng=np.random.default_rng(seed))[0]
        for seed in (1, 2, 1)
    )
    assert not np.array_equal(first, second)
    assert np.array_equal(first, again)


def test_a_transform_is_split_where_it_begins_to_draw() -> None:
    fixed, drawn = split_at_random_part(compose(invert, JITTER, transpose))
    assert fixed.transforms == (invert,)
    assert drawn.transforms == (JITTER, transpose)
    assert split_at_random_part(unchanged)[0].transforms == (unchanged,)
    assert split_at_random_part(unchanged)[1].transforms == ()
