"""A SuperLink and SuperNodes on this machine, each in its own process, for tests."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "examples" / "flower-digits"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], bool], description: str, seconds: float = 60.0) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: If it does not hold in time.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s: {description}")
        time.sleep(0.1)


class Home:
    """A home folder for Flower, and all processes that use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "flwr"
        self.home.mkdir(parents=True)
        self.env = {
            **os.environ,
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
        for name in [name for name in self.env if name.startswith("COV")]:
            del self.env[name]

    def flwr(self, *command: str, seconds: float = 60.0) -> str:
        """Run a command of Flower, and return its output."""
        done = subprocess.run(
            [str(BIN / "flwr"), *command], cwd=self.folder, env=self.env,
            capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"flwr {command}: {done.stdout}{done.stderr}")
        return done.stdout

    def processes_of(self, text: str = "") -> list[int]:
        """Return the ids of processes that use this home and have a text in their command line."""
        mark = f"FLWR_HOME={self.home}".encode()
        ids = []
        for folder in Path("/proc").iterdir():
            try:
                is_ours = folder.name.isdigit() and mark in (folder / "environ").read_bytes()
                if is_ours and text.encode() in (folder / "cmdline").read_bytes():
                    ids.append(int(folder.name))
            except OSError:
                continue
        return ids

    def close(self) -> None:
        """Kill all processes of this home."""
        for pid in self.processes_of():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self.processes_of(), "all processes end", 10)


class Network(Home):
    """A SuperLink, and SuperNodes that can be started and killed one by one.

    Every process leads its own session, which is killed as a whole.
    """

    def __init__(self, folder: Path, link_options: Sequence[str] = ("--insecure",)) -> None:
        super().__init__(folder)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.start(
            "superlink", "flower-superlink", *link_options, "--host", "127.0.0.1",
            "--port", str(self.port), "--disable-runtime-dependency-installation",
        )  # fmt: skip

    def start(self, name: str, *command: str) -> None:
        """Start a process; its output goes to the file ``log`` in a folder of its name."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        with (folder / "log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]], cwd=folder, env=self.env,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def node(
        self, number: int, count: int, *options: str, name: str = "", config: str = ""
    ) -> None:
        """Start the SuperNode of a partition; its name is ``node {number}`` unless it is given."""
        self.start(
            name or f"node {number}", "flower-supernode", *(options or ("--insecure",)),
            "--superlink", self.address, "--port", str(free_port()),
            "--node-config", f"partition-id={number} num-partitions={count} {config}".strip(),
        )  # fmt: skip

    def kill(self, name: str) -> None:
        """Kill a process and everything that it has started."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def kill_client_app(self, name: str) -> None:
        """Kill the process in which a node's client works, as soon as it starts."""
        node = self.processes[name].pid

        def killed() -> bool:
            clients = [p for p in self.processes_of("flwr-clientapp") if os.getsid(p) == node]
            for pid in clients:
                os.kill(pid, signal.SIGKILL)
            return bool(clients)

        wait_for(killed, f"the client of {name} works")

    def connect(self, config: str) -> None:
        """Write the SuperLink into the configuration of Flower's command line."""
        table = f'[superlink.test]\naddress = "{self.address}"\n{config}\n'
        (self.home / "config.toml").write_text(f'[superlink]\ndefault = "test"\n\n{table}')

    def submit(self, app: Path = APP, **config: Any) -> int:
        """Start a run, and return its id."""
        settings = " ".join(
            f"srfca.{key.replace('_', '-')}={json.dumps(value)}" for key, value in config.items()
        )
        text = self.flwr("run", str(app), "test", "--run-config", settings, "--format", "json")
        return int(json.loads(text[text.index("{") :])["run-id"])

    def wait_for_file(self, path: Path, run: int, seconds: float = 300.0) -> None:
        """Wait for a file that a run writes; raise an error with its log if it ends without."""

        def exists() -> bool:
            ended = re.search(rf"Finished task \d+ of run {run}", self.log())
            if ended and not path.exists():
                raise RuntimeError(self.flwr("log", str(run), "test", "--show"))
            return path.exists()

        wait_for(exists, f"run {run} writes {path.name}", seconds)

    def log(self, name: str = "superlink") -> str:
        """Return the output of a process so far."""
        return (self.folder / name / "log").read_text(errors="replace")

    def wait(self, text: str, name: str = "superlink", seconds: float = 90.0) -> None:
        """Wait until the output of a process has a text."""
        try:
            wait_for(lambda: text in self.log(name), f"the log of {name} has {text!r}", seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.log(name)[-3000:]}") from None

    def healthy(self) -> None:
        """Wait until the SuperLink accepts connections."""

        def accepts() -> bool:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return True
            except OSError:
                return False

        wait_for(accepts, "the SuperLink accepts connections")

    def close(self) -> None:
        """Kill all processes."""
        for name in list(self.processes):
            self.kill(name)
        super().close()
