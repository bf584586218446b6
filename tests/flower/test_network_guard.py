"""What a bad client can do over a real SuperLink: another's name, huge replies, others' models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srfca import Result
from srfca.flower.client_info import read_clients
from srfca.flower.names import read_allow_list
from tests.flower.keys import Keys
from tests.flower.network import APP, Network, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds processes in /proc"),
]

RUN: dict[str, Any] = {
    "num_clients": 3, "timeout": 60.0, "threshold": 100.0, "steps": 10, "local_steps": 10,
}  # fmt: skip
CLIENT = '''
"""A client that records what it is sent, and may send too much."""

import json

from flwr.app import ArrayRecord

from flower_digits.client import load_data
from flower_digits.task import model
from srfca.flower import client_app
from srfca.flower.records import ARRAYS, ROWS, arrays_of, pack, row_name, unpack
import torch

app = client_app(model=model, data=load_data)


class Recording(type(app)):
    def __call__(self, message, context):
        reply = super().__call__(message, context)
        kind = message.metadata.message_type
        entry = {"kind": kind, "sent": list(arrays_of(message.content, ROWS)), "trained": []}
        if kind == "train.train":
            rows = unpack(reply.content.array_records[ARRAYS]["rows"])
            entry["trained"] = [row_name(pack(row)) for row in rows]
        with open(context.node_config["record"], "a") as file:
            file.write(json.dumps(entry) + "\\n")
        if kind == "train.train" and context.node_config.get("megabytes", 0):
            numbers = torch.zeros(2**18 * int(context.node_config["megabytes"]))
            reply.content[ARRAYS] = ArrayRecord({"rows": pack(numbers)})
        return reply


app.__class__ = Recording
'''


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """Return an app with distances of models, whose clients record what they are sent."""
    folder = tmp_path / "app"
    shutil.copytree(APP, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "flower_digits" / "recording.py").write_text(CLIENT.lstrip())
    settings = folder / "pyproject.toml"
    text = settings.read_text().replace(".client:app", ".recording:app")
    settings.write_text(text.replace("threshold =", 'distance = "l2"\nthreshold ='))
    return folder


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


def run(network: Network, app: Path, out: Path, *configs: str) -> Result:
    """Start three nodes with these configurations, and return the result of a run."""
    for number in range(3):
        config = f"record='{out.parent / f'record-{number}'}' {configs[number] if configs else ''}"
        network.node(number, 3, config=config)
    submitted = network.submit(app, out=str(out), **RUN)
    network.wait_for_file(out / "result.json", submitted)
    return Result.load(out)


def test_a_huge_reply_is_a_missing_one(network: Network, app: Path, tmp_path: Path) -> None:
    result = run(network, app, tmp_path / "out", "", "", "megabytes=300")
    missing = [reply for stage in result.history for reply in stage.notes.get("missing", [])]
    trainings = [reply for reply in missing if reply["request"] == "train"]
    assert trainings
    for reply in trainings:
        assert reply["client"] == "2"
        assert reply["reason"].startswith("its reply has 3145728")
        assert "bytes, at most" in reply["reason"]
    assert result.models.isfinite().all()
    assert result.labels[0] >= 0


def test_no_client_is_sent_the_model_of_another(
    network: Network, app: Path, tmp_path: Path
) -> None:
    result = run(network, app, tmp_path / "out")
    assert len(result.client_ids) == 3
    records = [
        [json.loads(line) for line in (tmp_path / f"record-{number}").read_text().splitlines()]
        for number in range(3)
    ]
    sent = [{name for entry in record for name in entry["sent"]} for record in records]
    trained = [{name for entry in record for name in entry["trained"]} for record in records]
    kinds = {entry["kind"] for record in records for entry in record}
    assert {"query.hello", "train.train", "query.losses", "query.loss_moments"} <= kinds
    for client in range(3):
        assert trained[client]
        for other in range(3):
            assert client == other or not trained[client] & sent[other]


def test_a_registered_node_cannot_take_the_name_of_another(app: Path, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    network = Network(
        tmp_path / "network",
        [
            "--ssl-ca-certfile", str(keys.authority), "--ssl-certfile", str(keys.certificate),
            "--ssl-keyfile", str(keys.key), "--enable-supernode-auth",
        ],
    )  # fmt: skip
    out, listed = tmp_path / "out", tmp_path / "listed.json"
    record = f"record='{tmp_path / 'record'}'"
    try:
        network.connect(f'root-certificates = "{keys.authority}"')
        network.healthy()

        def register(name: str) -> list[str]:
            private, public = keys.node(name)
            network.flwr("supernode", "register", str(public), "test")
            return [
                "--root-certificates", str(keys.authority),
                "--auth-supernode-private-key", str(private),
            ]  # fmt: skip

        for number in range(3):
            network.node(number, 3, *register(f"node{number}"), config=record)
        submitted = network.submit(app, out=str(out), **RUN, serve=True, poll=0.5)
        network.wait_for_file(out / "result.json", submitted)
        network.kill("node 2")
        network.node(2, 3, *register("spoofer"), name="spoofer", config=record)
        log = out / "progress" / "now.json"
        refusal = "client '2' belongs to another key"
        wait_for(lambda: refusal in log.read_text(), "the server refuses the node", 60)
        listed.write_text(json.dumps({"2": (keys.folder / "node2.pub").read_text()}))
        assert read_clients(out)[2].key == read_allow_list(listed)["2"]
    finally:
        network.close()
