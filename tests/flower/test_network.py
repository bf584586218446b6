"""SR-FCA and IFCA on a real SuperLink with real SuperNodes, each in its own process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srfca import SRFCA, LocalTraining, Partition, Result, Simulation, data, models
from srfca.methods import IFCA, Method
from tests.flower.keys import Keys
from tests.flower.network import APP, Home, Network, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds processes in /proc"),
]

LOCAL = LocalTraining(steps=60, local_steps=60, batch_size=10, lr=0.5)
SR_FCA = SRFCA(local=LOCAL, threshold=1.5, refine_steps=1)
RUN: dict[str, Any] = {
    "num_clients": 4, "timeout": 120.0, "threshold": 1.5, "local_steps": 60,
}  # fmt: skip


def simulate(method: Method, num_clients: int) -> Result:
    """Return the result of a method in a simulation."""
    federation = Simulation(
        data.rotated_digits(num_clients=num_clients, rotations=2), models.mlp(64, 32, 10)
    )
    result = method.fit(federation, seed=0)
    assert result.partition == federation.data.truth
    return result


def check_equal(result: Result, expected: Result) -> None:
    assert not [stage.notes["missing"] for stage in result.history if "missing" in stage.notes]
    assert result.client_ids == expected.client_ids
    assert result.partition == expected.partition
    assert torch.allclose(result.models, expected.models, atol=1e-5)
    for stage, expected_stage in zip(result.history, expected.history, strict=True):
        assert stage.name == expected_stage.name
        assert stage.loss == pytest.approx(expected_stage.loss, abs=1e-5)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """Start a SuperLink without TLS."""
    started = Network(tmp_path / "network")
    try:
        started.connect("insecure = true")
        started.healthy()
        yield started
    finally:
        started.close()


def wait_for_result(network: Network, folder: Path, run: int) -> Result:
    network.wait_for_file(folder / "result.json", run)
    return Result.load(folder)


def test_results_are_those_of_a_simulation(network: Network, tmp_path: Path) -> None:
    for number in range(4):
        network.node(number, 4)
    first = network.submit(out=str(tmp_path / "sr-fca"), **RUN)
    second = network.submit(out=str(tmp_path / "ifca"), method="ifca", **RUN)
    check_equal(wait_for_result(network, tmp_path / "sr-fca", first), simulate(SR_FCA, 4))
    ifca = IFCA(k=2, local=LOCAL)
    check_equal(wait_for_result(network, tmp_path / "ifca", second), simulate(ifca, 4))


def test_a_run_in_the_simulation_of_flower(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    try:
        config = f"srfca.out='{tmp_path / 'out'}' srfca.local-steps=60"
        size = ("--federation-config", "num-supernodes=8")
        home.flwr("run", str(APP), "local", "--stream", *size, "-c", config, seconds=240)
        assert home.processes_of("superlink")
        assert len(list((home.folder / "models").iterdir())) == 8
    finally:
        home.close()
    auto = SRFCA(local=LOCAL, refine_steps=1)
    check_equal(Result.load(tmp_path / "out"), simulate(auto, 8))


def test_a_run_continues_when_nodes_are_killed(network: Network, tmp_path: Path) -> None:
    """One in ONE_SHOT, one in REFINE; and a client's process, whose node asks it again."""
    for number in range(5):
        network.node(number, 5)
    config = {**RUN, "num_clients": 5, "min_clients": 3, "timeout": 30.0}
    run = network.submit(out=str(tmp_path / "out"), **config)
    for node, trainings, kill in (
        (4, 1, network.kill),
        (3, 2, network.kill_client_app),
        (2, 2, network.kill),
    ):
        name = f"node {node}"
        wait_for(
            lambda name=name, trainings=trainings: (  # type: ignore[misc]
                network.log(name).count("Receiving: train.train") == trainings
            ),
            f"{name} receives training {trainings}",
            200,
        )
        kill(name)
    result = wait_for_result(network, tmp_path / "out", run)
    truth = np.arange(5) % 2
    rest = [0, 1, 3]
    assert Partition(result.labels[rest]) == Partition(truth[rest])
    missing = {
        stage.name: {reply["client"] for reply in stage.notes.get("missing", [])}
        for stage in result.history
    }
    assert missing["ONE_SHOT"] == {"4"}
    assert missing["TRIMMED_MEAN_GD 1"] == {"2", "3"}
    assert "3" not in missing["RECLUSTER 1"]
    assert result.labels[4] == -1
    assert result.labels[2] == result.labels[0]


def test_tls_with_registered_keys_and_a_server_that_is_killed(tmp_path: Path) -> None:
    keys, other_keys = Keys(tmp_path / "keys"), Keys(tmp_path / "other-keys")
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
        unregistered, _ = keys.node("unregistered")
        network.node(
            7, 4, "--root-certificates", str(keys.authority),
            "--auth-supernode-private-key", str(unregistered), "--max-retries", "1",
        )  # fmt: skip
        registered, public = keys.node("registered")
        network.flwr("supernode", "register", str(public), "test")
        network.node(
            8, 4, "--root-certificates", str(other_keys.authority),
            "--auth-supernode-private-key", str(registered), "--max-retries", "1",
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
        check_equal(wait_for_result(network, out, again), simulate(SR_FCA, 4))
        for node, reason in (
            ("node 7", "Failed to activate SuperNode"),
            ("node 8", "CERTIFICATE_VERIFY_FAILED"),
        ):
            assert reason in network.log(node)
            assert network.processes[node].poll() is not None
    finally:
        network.close()
