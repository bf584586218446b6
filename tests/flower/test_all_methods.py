"""Every registered method over Flower: with a client that leaves, and with a killed server."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flwr.app import Message

from srfca.methods import Method, Result, all_methods
from tests.flower.setup import M, make_federation, make_grid, no_fault, run_app
from tests.flower.test_federation import TWO_LAYERS, make_method
from tests.flower.test_server import kill_after

pytestmark = pytest.mark.slow

METHODS = pytest.mark.parametrize(
    "method", [*map(make_method, all_methods())], ids=lambda method: method.key
)


@METHODS
def test_it_continues_without_a_client_that_leaves(method: Method) -> None:
    """Client 6 leaves after one and a half requests to all."""
    grid = make_grid(model=TWO_LAYERS)
    federation = make_federation(grid, model=TWO_LAYERS)

    def leave_later(partition: int, message: Message) -> object:
        if len(grid.log) > 3 * M // 2:
            grid.leave(6)
        return None

    grid.fault = leave_later
    result = method.fit(federation, seed=1)
    assert {reply.client for reply in federation.missing} == {"6"}
    rest = [client for client in range(M) if client != 6]
    assert (result.labels[rest] >= 0).all()
    assert result.models.isfinite().all()
    assert result.scores(federation).loss[rest].isfinite().all()


@METHODS
def test_it_resumes_where_the_server_was_killed(method: Method, tmp_path: Path) -> None:
    results: list[Result] = []
    for name, messages in (("complete", None), ("killed", 3 * M // 2)):
        grid = make_grid(model=TWO_LAYERS)
        config = {"num-clients": M, "seed": 1, "out": str(tmp_path / name)}
        if messages is not None:
            kill_after(grid, messages)
            with pytest.raises(KeyboardInterrupt):
                run_app(grid, config, model=TWO_LAYERS, method=method)
            grid.fault = no_fault
        run_app(grid, config, model=TWO_LAYERS, method=method)
        results.append(Result.load(tmp_path / name))
    complete, resumed = results
    assert resumed.labels.tolist() == complete.labels.tolist()
    torch.testing.assert_close(resumed.models, complete.models, rtol=1e-4, atol=1e-5)
    assert not any("missing" in stage.notes for stage in resumed.history)
