"""Poisoned data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import ClientData, InputError
from srfca.data import flip_labels


def test_labels_are_flipped_in_the_training_data_of_some_clients_alone() -> None:
    samples = [(np.zeros((n, 1)), np.arange(n) % 3) for n in (4, 5, 6)]
    data = ClientData.from_arrays(samples, samples)
    poisoned = flip_labels(data, [1])
    assert poisoned.train.of(1)[1].tolist() == [2, 1, 0, 2, 1]
    assert torch.equal(poisoned.train.of(0)[1], data.train.of(0)[1])
    assert torch.equal(poisoned.train.of(2)[1], data.train.of(2)[1])
    assert poisoned.test is data.test


def test_targets_must_be_classes() -> None:
    values = ClientData.from_arrays([(np.ones((4, 2)), np.ones(4))])
    with pytest.raises(InputError, match="needs targets that are classes"):
        flip_labels(values, [0])
