"""The client's side: its data, what it keeps between messages, and local algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from flwr.app import Message
from torch import Tensor

from srfca import FedAvg, InputError, LocalTraining
from srfca.engine.autograd_training import PerformanceWarning
from srfca.federation import Descent, LocalAlgorithm, LocalClient, Phase, register_algorithm
from srfca.federation.algorithms import ALGORITHMS
from srfca.federation.coordinates import Coordinates
from srfca.flower.records import make_content
from srfca.methods import METHODS
from tests.flower.grid import LocalGrid
from tests.flower.setup import (
    DATA,
    FreshProcess,
    M,
    make_app,
    make_federation,
    make_grid,
    make_simulation,
    train_request,
)


def test_data_of_several_clients_are_refused() -> None:
    grid = LocalGrid(make_app(data=lambda context: DATA), [0])
    message = Message(make_content({}), 1, "query.hello")
    message.metadata.__dict__["_message_id"] = "x"
    with pytest.raises(InputError, match="data must return the data of one client, not of 8"):
        grid.app(message, grid.contexts[1])


@pytest.mark.parametrize("optimizer", [{"momentum": 0.9}, {"optimizer": "adam", "lr": 0.05}])
def test_optimizer_states_survive_a_process(optimizer: dict[str, Any]) -> None:
    settings = {"steps": 9, "local_steps": 3, "lr": 0.1, "keep_state": True} | optimizer
    local = LocalTraining(**settings)
    grid = LocalGrid(FreshProcess(), range(M))
    for method in (FedAvg(local=local, fine_tune_steps=10), METHODS["fedem"](k=2, local=local)):  # type: ignore[call-arg]
        result = method.fit(make_federation(grid), seed=2)
        expected = method.fit(make_simulation(), seed=2)
        assert torch.allclose(result.models, expected.models, atol=1e-5)
    stateless = FedAvg(local=LocalTraining(**settings | {"keep_state": False}))
    result = stateless.fit(make_federation(grid), seed=2)
    expected = FedAvg(local=local).fit(make_simulation(), seed=2)
    assert not torch.allclose(result.models, expected.models, atol=1e-5)


@register_algorithm
@dataclass(frozen=True, eq=False)
class ScaledDescent(LocalAlgorithm):
    """Steps along gradients that are scaled, shifted and turned into a distribution."""

    key: ClassVar[str] = "test-scaled-descent"

    scale: float
    names: tuple[str, ...]
    shifts: Tensor
    """``[c, P]``"""
    tables: Tensor
    """``[c, 2, 3]``, in double precision."""
    counts: Tensor
    """``[c]``, integers."""

    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        assert list(self.names) == ["a", "b"]
        assert rows["tables"].dtype == torch.float64
        assert rows["counts"].dtype == torch.int64
        row, factor = start, self.scale * rows["tables"].sum() * rows["counts"]
        for step in client.steps:
            gradient = client.gradient(row, *client.batch(step)) + rows["shifts"]
            row = row - (client.local.rate(step) * factor * gradient).to(row)
        return row


def scaled_descent() -> ScaledDescent:
    entries = torch.arange(1.0, M + 1)
    tables = (entries.double() / 100).view(M, 1, 1).expand(M, 2, 3)
    shifts = 0.01 * entries.view(M, 1).expand(M, 28)
    return ScaledDescent(0.5, ("a", "b"), shifts, tables, torch.arange(M))


def test_a_local_algorithm_runs_at_the_clients() -> None:
    grid = make_grid()
    federation = make_federation(grid)
    request = train_request(federation.initial_model(0), algorithm=scaled_descent())
    with pytest.warns(PerformanceWarning, match="test-scaled-descent"):
        replies = federation.ask(request)
    with pytest.warns(PerformanceWarning, match="test-scaled-descent"):
        expected = make_simulation().ask(request)
    assert not replies.missing
    assert torch.allclose(replies.values, expected.values, atol=1e-6)
    assert torch.equal(replies.values[0], federation.initial_model(0)), "its count is 0"
    assert not torch.equal(replies.values[1], federation.initial_model(0))


def test_an_unknown_local_algorithm_is_an_error_at_the_clients() -> None:
    federation = make_federation()
    request = train_request(federation.initial_model(0), algorithm=scaled_descent())
    items = ALGORITHMS._items
    registered = items.pop(ScaledDescent.key)
    try:
        with pytest.raises(InputError, match="'test-scaled-descent' is not registered at this"):
            federation.ask(request)
    finally:
        items[ScaledDescent.key] = registered


def test_a_client_does_not_import_what_a_message_names() -> None:
    @dataclass(frozen=True, eq=False)
    class Elsewhere(ScaledDescent):
        key: ClassVar[str] = "tests.flower.test_client:ScaledDescent"

    federation = make_federation()
    entries = torch.zeros(M)
    algorithm = Elsewhere(1.0, (), entries, entries, entries)
    with pytest.raises(InputError, match="is not registered at this client"):
        federation.ask(train_request(federation.initial_model(0), algorithm=algorithm))


def test_settings_that_are_not_json_cannot_be_sent() -> None:
    federation = make_federation()
    entries = torch.zeros(M)
    algorithm = ScaledDescent(1.0, {"a"}, entries, entries, entries)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cannot be sent as JSON"):
        federation.ask(train_request(federation.initial_model(0), algorithm=algorithm))


def test_phases_are_sent() -> None:
    federation = make_federation()
    head, body = Coordinates(((24, 28),)), Coordinates(((0, 24),))
    algorithm = Descent(phases=(Phase(head, 1), Phase(body)))
    request = train_request(federation.initial_model(0), algorithm=algorithm)
    expected = make_simulation().ask(request).values
    assert torch.allclose(federation.ask(request).values, expected, atol=1e-5)
    plain = make_simulation().ask(train_request(federation.initial_model(0))).values
    assert not torch.allclose(plain, expected, atol=1e-3)
