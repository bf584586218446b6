"""Local algorithms: their parts, what is sent of them, and their registry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from srfca import InputError
from srfca.federation import (
    Coordinates,
    Descent,
    LocalAlgorithm,
    LocalClient,
    Mixture,
    Phase,
    Posterior,
    register_algorithm,
)
from srfca.federation.algorithms import ALGORITHMS

BODY, HEAD = Coordinates(((0, 3),)), Coordinates(((3, 5),))


def test_everything_trains_in_all_steps_without_phases() -> None:
    assert Descent().spans(4) == [(None, range(4))]


def test_phases_follow_each_other() -> None:
    descent = Descent(phases=(Phase(HEAD, 2), Phase(BODY)))
    assert descent.spans(5) == [(HEAD, range(2)), (BODY, range(2, 5))]
    assert descent.spans(2) == [(HEAD, range(2))], "a short last round ends before the body trains"
    assert descent.spans(1) == [(HEAD, range(1))]
    fixed = Descent(phases=(Phase(HEAD, 2), Phase(BODY, 3)))
    assert fixed.spans(5) == [(HEAD, range(2)), (BODY, range(2, 5))]
    with pytest.raises(InputError, match="the phases have 5 steps, but the round has 6"):
        fixed.spans(6)


def test_descent_is_sent_as_settings_and_tensors() -> None:
    anchors, corrections = torch.zeros(2, 5), torch.ones(2, 5)
    descent = Descent(
        anchors=anchors, corrections=corrections, phases=(Phase(HEAD, 2), Phase(BODY))
    )
    assert set(descent.tensors()) == {"anchors", "corrections"}
    settings = json.loads(json.dumps(descent.settings()))
    restored = Descent.restore(settings, descent.tensors())
    assert restored.phases == descent.phases
    assert restored.anchors is anchors
    assert restored.corrections is corrections
    assert Descent().settings() == Descent().tensors() == {}


def test_a_posterior_of_some_entries() -> None:
    mixture = Mixture(torch.zeros(2, 5), torch.tensor([[0.1, 0.9], [0.2, 0.8]]))
    descent = Descent(posterior=Posterior(mixture, torch.tensor([0, 1])))
    part = descent.select(np.array([1])).posterior
    assert part is not None
    assert part.component.tolist() == [1]
    assert part.mixture.weights.tolist() == [pytest.approx([0.2, 0.8])]
    assert len(part.mixture) == 1


@register_algorithm
@dataclass(frozen=True, eq=False)
class Scaled(LocalAlgorithm):
    """A step along the gradient, scaled by a row of each client."""

    key: ClassVar[str] = "test-scaled"

    scales: Tensor
    factor: float = 1.0

    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        return start * rows["scales"] * self.factor


def test_the_parts_of_an_algorithm_of_a_user() -> None:
    scaled = Scaled(torch.tensor([[1.0], [2.0], [3.0]]), factor=0.5)
    assert ALGORITHMS["test-scaled"] is Scaled
    assert scaled.settings() == {"factor": 0.5}
    assert list(scaled.tensors()) == ["scales"]
    part = scaled.select(np.array([2, 0]))
    assert part.scales.tolist() == [[3.0], [1.0]]
    assert part.factor == 0.5
    restored = Scaled.restore(scaled.settings(), scaled.tensors())
    assert restored.scales is scaled.scales


def test_descent_is_in_the_registry_and_keys_are_unique() -> None:
    assert ALGORITHMS["descent"] is Descent
    with pytest.raises(InputError, match=r"unknown local algorithm 'decsent'.*'descent'"):
        ALGORITHMS["decsent"]

    class Descends(LocalAlgorithm):
        key: ClassVar[str] = "descent"

    with pytest.raises(InputError, match="two local algorithms have the key 'descent'"):
        register_algorithm(Descends)
    with pytest.raises(InputError, match="must be a subclass of LocalAlgorithm"):
        ALGORITHMS["tests.federation.test_algorithms:test_phases_follow_each_other"]


def test_the_engines_implement_descent_themselves() -> None:
    with pytest.raises(NotImplementedError, match="every engine implements Descent"):
        Descent().train(None, torch.zeros(3))  # type: ignore[arg-type]
