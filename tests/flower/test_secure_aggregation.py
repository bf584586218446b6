"""Why Flower's SecAgg+ is not used (docs/privacy.md): facts that Flower may change."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.server.workflow import SecAggPlusWorkflow

from tests.flower.setup import make_grid


def test_the_workflow_refuses_the_context_of_a_server_app() -> None:
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})
    workflow = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2)
    with pytest.raises(TypeError, match="Expect a LegacyContext"):
        workflow(make_grid(), context)


def test_masks_have_32_bits() -> None:
    """Two keys of 256 bits that differ give the same mask."""
    key = bytes(range(32))
    other = key[4:8] + key[:4] + key[8:]
    mask, other_mask = (pseudo_rand_gen(seed, 2**32, [(5,)])[0] for seed in (key, other))
    assert key != other
    assert np.array_equal(mask, other_mask)
