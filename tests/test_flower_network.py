"""SR-FCA and IFCA on a real SuperLink with real SuperNodes, each process its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srfca import SRFCA, Partition, Result, Simulation, Work, data, models
from srfca.methods import IFCA, Method
from tests.flower_keys import Keys
from tests.flower_network import APP, Home, Network, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds processes in /proc"),
]

WORK: dict[str, Any] = {"steps": 60, "local_steps": 60, "batch_size": 10, "lr": 0.5}
RUN: dict[str, Any] = {"clients": 4, "timeout": 120.0, "threshold": 1.5, "local_steps": 60}


def simulated(method: Method, clients: int) -> Result:
    """The same in one process."""
    federation = Simulation(
        data.rotated_digits(num_clients=clients, rotations=2), models.mlp(64, 32, 10)
    )
    result = method.fit(federation, seed=0)
    assert result.partition == federation.data.truth
    return result


def same(found: Result, expected: Result) -> None:
    assert not [stage.notes["absent"] for stage in found.history if "absent" in stage.notes]
    assert found.clients == expected.clients
    assert found.partition == expected.partition
    assert torch.allclose(found.models, expected.models, atol=1e-5)
    for ours, theirs in zip(found.history, expected.history, strict=True):
        assert ours.name == theirs.name
        assert ours.loss == pytest.approx(theirs.loss, abs=1e-5)


SR_FCA = SRFCA(work=Work(**WORK), threshold=1.5, refine_steps=1)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """A SuperLink without TLS."""
    started = Network(tmp_path / "network")
    try:
        started.connect("insecure = true")
        started.healthy()
        yield started
    finally:
        started.close()


def result_of(network: Network, folder: Path, run: int) -> Result:
    network.wait_for_file(folder / "result.json", run)
    return Result.load(folder)


def test_the_same_as_in_a_simulation(network: Network, tmp_path: Path) -> None:
    for number in range(4):
        network.node(number, 4)
    first = network.submit(out=str(tmp_path / "sr-fca"), **RUN)
    second = network.submit(out=str(tmp_path / "ifca"), method="ifca", **RUN)
    same(result_of(network, tmp_path / "sr-fca", first), simulated(SR_FCA, 4))
    same(result_of(network, tmp_path / "ifca", second), simulated(IFCA(k=2, work=Work(**WORK)), 4))


def test_in_flower_s_simulation(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    try:
        config = f"srfca.out='{tmp_path / 'out'}' srfca.local-steps=60"
        size = ("--federation-config", "num-supernodes=8")
        home.flwr("run", str(APP), "local", "--stream", *size, "-c", config, seconds=240)
        assert home.processes_of("superlink")
    finally:
        home.close()
    auto = SRFCA(work=Work(**WORK), refine_steps=1)
    same(Result.load(tmp_path / "out"), simulated(auto, 8))


def test_nodes_killed_in_one_shot_and_in_refine(network: Network, tmp_path: Path) -> None:
    """And a client's process alone: its node stays, and it is asked again."""
    for number in range(5):
        network.node(number, 5)
    config = {**RUN, "clients": 5, "min_clients": 3, "timeout": 30.0}
    run = network.submit(out=str(tmp_path / "out"), **config)
    for node, trainings, kill in (
        (4, 1, network.kill),
        (3, 2, network.kill_client_app),
        (2, 2, network.kill),
    ):
        name = f"node {node}"
        wait_for(
            lambda name=name, trainings=trainings: (  # type: ignore[misc]
                network.log(name).count("Receiving: train.fit") == trainings
            ),
            f"{name} is asked to train",
            200,
        )
        kill(name)
    result = result_of(network, tmp_path / "out", run)
    truth = np.arange(5) % 2
    rest = [0, 1, 3]
    assert Partition(result.labels[rest]) == Partition(truth[rest])
    absent = {
        stage.name: {each["client"] for each in stage.notes.get("absent", [])}
        for stage in result.history
    }
    assert absent["ONE_SHOT"] == {"4"}
    assert absent["TRIMMED_MEAN_GD 1"] == {"2", "3"}
    assert "3" not in absent["RECLUSTER 1"]
    assert result.labels[4] == -1
    assert result.labels[2] == result.labels[0]


def test_tls_with_known_keys_and_a_server_that_is_killed(tmp_path: Path) -> None:
    keys, strangers = Keys(tmp_path / "keys"), Keys(tmp_path / "strangers")
    network = Network(
        tmp_path / "network",
        [
            "--ssl-ca-certfile", str(keys.authority), "--ssl-certfile", str(keys.certificate),
            "--ssl-keyfile", str(keys.key), "--enable-supernode-auth",
        ],
    )  # fmt: skip
    try:
        network.connect(f'root-certificates = "{keys.authority}"')
        network.healthy()
        for number in range(4):
            private, public = keys.node(f"node{number}")
            network.flwr("supernode", "register", str(public), "test")
            network.node(
                number, 4, "--root-certificates", str(keys.authority),
                "--auth-supernode-private-key", str(private),
            )  # fmt: skip
        unknown, _ = keys.node("unknown")
        network.node(
            7, 4, "--root-certificates", str(keys.authority),
            "--auth-supernode-private-key", str(unknown), "--max-retries", "1",
        )  # fmt: skip
        known, public = keys.node("deceived")
        network.flwr("supernode", "register", str(public), "test")
        network.node(
            8, 4, "--root-certificates", str(strangers.authority),
            "--auth-supernode-private-key", str(known), "--max-retries", "1",
        )  # fmt: skip
        out = tmp_path / "out"
        run = network.submit(out=str(out), **RUN)
        network.wait_for_file(out / "journal" / "000001.safetensors", run)
        servers = network.processes_of("flwr-serverapp")
        assert servers
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
        assert not (out / "result.json").exists()
        again = network.submit(out=str(out), **RUN)
        same(result_of(network, out, again), simulated(SR_FCA, 4))
        for node, why in (
            ("node 7", "Failed to activate SuperNode"),
            ("node 8", "CERTIFICATE_VERIFY_FAILED"),
        ):
            assert why in network.log(node)
            assert network.processes[node].poll() is not None
    finally:
        network.close()
