"""A Ray cluster on this machine, in a process of its own, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_MEMORY = 100 * 2**20
"""Bytes of each node's object store."""
_SYSTEM = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}
"""A dead node is noticed within seconds."""


class LocalCluster:
    """A head without CPUs, and nodes of two CPUs each. Ray's own processes stay out of the tests'.

    Args:
        num_nodes: How many nodes.
    """

    def __init__(self, num_nodes: int = 2) -> None:
        environment = {
            **os.environ,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_DISABLE_IMPORT_WARNING": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "PYTHONWARNINGS": "ignore",
        }
        for name in [name for name in environment if name.startswith("COV")]:
            del environment[name]
        self._folder = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
        self._log = open(Path(self._folder.name) / "log", "wb")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(num_nodes)], env=environment, cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip
        self.address: str = self._read()

    def require_nodes(self, count: int) -> None:
        """Start nodes until there are this many."""
        self._command("nodes", count)

    def close(self) -> None:
        """End all processes of the cluster."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def _command(self, *words: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        log = Path(self._log.name).read_text(errors="replace")
        raise RuntimeError(f"the Ray cluster has ended:\n{log[-3000:]}")


def _serve(num_nodes: int) -> None:
    """Run a cluster until standard input ends."""
    from ray.cluster_utils import Cluster

    head = {
        "num_cpus": 0, "include_dashboard": False, "object_store_memory": _MEMORY,
        "_system_config": _SYSTEM,
    }  # fmt: skip
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes: list[Any] = []

    def require_nodes(count: int) -> None:
        for node in [node for node in nodes if not _lives(node)]:
            nodes.remove(node)
            cluster.remove_node(node, allow_graceful=False)
        while len(nodes) < count:
            nodes.append(cluster.add_node(num_cpus=2, object_store_memory=_MEMORY))
        cluster.wait_for_nodes()

    require_nodes(num_nodes)
    _answer(cluster.address)
    for line in sys.stdin:
        _, count = json.loads(line)
        require_nodes(count)
        _answer(None)
    cluster.shutdown()


def _lives(node: Any) -> bool:
    return not node.dead_processes()


def _answer(value: Any) -> None:
    print("answer", json.dumps(value), flush=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
