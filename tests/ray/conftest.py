"""Fixtures of the tests on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.ray.cluster import LocalCluster


@pytest.fixture(scope="session")
def started_cluster() -> Iterator[LocalCluster]:
    """A cluster that this process is connected to, for the whole session."""
    ray = pytest.importorskip("ray")
    from srfca.ray import connect

    cluster = LocalCluster()
    try:
        connect(cluster.address)
        yield cluster
    finally:
        ray.shutdown()
        cluster.close()


@pytest.fixture
def cluster(started_cluster: LocalCluster) -> LocalCluster:
    """The cluster, with two nodes of two CPUs each."""
    started_cluster.require_nodes(2)
    return started_cluster


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: small tensors on many threads are slow on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
