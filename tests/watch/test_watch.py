"""A run in progress, as seen from another process and in a browser."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from srfca import SRFCA, InputError, LocalTraining, Simulation, SrfcaWarning, data, models
from srfca.callbacks import Monitor, ProgressFolder
from srfca.callbacks.progress_folder import NOW, PROGRESS, stage_file
from srfca.callbacks.progress_folder import START as START_FILE
from srfca.federation import Budget
from srfca.federation.middleware.counting import MissingReply
from srfca.methods import Result, RoundEnd, RunStart, Stage
from srfca.report.view import moved_clients
from tests.cli.command import srfca
from tests.report.browser import (
    WAIT_SECONDS,
    browser,
    draw_all,
    forget,
    look,
    problems,
    requests,
    require_browser,
    wait_until,
)

pytest.importorskip("starlette", reason="needs srfca[watch]")

from srfca.watch.live import live
from srfca.watch.progress import ProgressReader
from srfca.watch.server import address, listen, make_server
from srfca.watch.source import Source

START = RunStart("SR-FCA", {"trim": 0.1}, 0, tuple("abcdef"))


def stage(name: str, *labels: int, **notes: Any) -> Stage:
    return Stage(name, labels, seconds=1.0, loss=0.5, accuracy=0.8, notes=notes)


def small_run(callbacks: list[Monitor]) -> Result:
    federation = Simulation(data.rotated_digits(num_clients=6, rotations=2), models.mlp(64, 8, 10))
    method = SRFCA(local=LocalTraining(steps=20, batch_size=10, lr=0.5), refine_steps=1, curves=2)
    return method.fit(federation, callbacks=callbacks)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder in a thread."""
    with listen("127.0.0.1", 0) as listening:
        server = make_server(Source(folder), listening)
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield address(listening)
        finally:
            server.should_exit = True
            thread.join()


def get(url: str, **headers: str) -> str:
    with urllib.request.urlopen(
        urllib.request.Request(url, headers=headers), timeout=WAIT_SECONDS
    ) as reply:
        text: str = reply.read().decode()
        return text


def test_a_run_can_be_followed_in_its_folder(tmp_path: Path) -> None:
    reader = ProgressReader(tmp_path)
    seen: list[tuple[int, str]] = []

    class Reader(Monitor):
        def stage_end(self, stage: Stage) -> None:
            progress = reader.read()
            assert progress is not None
            assert progress.history[-1].name == stage.name
            assert progress.history[-1].labels == stage.labels
            seen.append((len(progress.history), live(progress).title))

    assert reader.read() is None
    folder = ProgressFolder(tmp_path, "digits")
    result = small_run([folder, Reader()])
    assert [number for number, _ in seen] == list(range(1, len(result.history) + 1))
    progress = reader.read()
    assert progress is not None
    assert progress.state == "ended"
    view = progress.view()
    assert view is not None
    assert view.title == "digits, SR-FCA, seed 0"
    assert view.labels.tolist() == list(result.history[-1].labels)
    assert live(progress).curve is not None
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_is_shown_of_stages_rounds_moves_and_missing_clients(tmp_path: Path) -> None:
    folder, reader = ProgressFolder(tmp_path), ProgressReader(tmp_path)
    first = reader.read()
    assert first is not None
    assert live(first).title == "Starting"
    folder.run_start(START)
    folder.stage_end(stage("ONE_SHOT", 0, 0, 0, 1, 1, 1))
    missing = [{"client": "b", "request": "Train", "reason": "timeout"}]
    folder.stage_end(stage("RECLUSTER 1", 0, 0, 1, 1, 1, 1, missing=missing, warning="no gap"))
    folder.stage_end(stage("SMALL", 0, 0))  # of a few clients only
    with folder.stage("GD 2", 100) as advance:
        advance(25)
        reply = MissingReply("f", "Train", "it is busy")
        folder.round_end(RoundEnd("GD 2", 1, 4, Budget(local_steps=60), (reply,)))
        folder.note("a message")
        progress = reader.read()
        assert progress is not None
        shown = live(progress)
    assert shown.title == "Running: GD 2"
    assert shown.subtitle == "round 1 of 4, 25 of 100 local steps"
    assert shown.fraction == 0.25
    assert [(line.name, line.moved, line.missing) for line in shown.stages] == [
        ("RECLUSTER 1", "c", "b (1)"), ("ONE_SHOT", "none", "none"),
    ]  # fmt: skip
    assert shown.alarms == [
        "No reply in the last round (it is busy): f.",
        "This result is uncertain so far: no gap.",
    ]
    facts = {fact.title: fact.value for fact in shown.facts}
    assert facts["moved in the last stage"] == facts["missing in the last round"] == "1"
    assert facts["local steps per client"] == "10"
    assert [text for _, _, text in shown.log] == ["a message"]


def test_stages_that_the_table_leaves_out_are_called_trials(tmp_path: Path) -> None:
    folder = ProgressFolder(tmp_path)
    folder.run_start(START)
    folder.stage_end(stage("ONE_SHOT", 0, 0, 0, 1, 1, 1))
    folder.stage_end(stage("TOGETHER", 0, 0, 0, 0, 0, 0))
    progress = ProgressReader(tmp_path).read()
    assert progress is not None
    shown = live(progress)
    assert (shown.facts[0].value, shown.facts[0].remark) == ("2", "1 of them a trial")
    assert len(shown.stages) == 1


def test_merging_clusters_moves_no_client() -> None:
    before = stage("A", 0, 0, 1, 1, 2, -1)
    assert moved_clients(before, stage("B", 0, 0, 0, 0, 1, -1)).tolist() == []
    assert moved_clients(before, stage("B", 0, 0, 1, 1, 1, 1)).tolist() == [5]
    assert moved_clients(before, stage("B", 0, 0, -1, -1, 1, -1)).tolist() == [2, 3]


def test_failures_warnings_and_logs_are_alarms(tmp_path: Path) -> None:
    folder, reader = ProgressFolder(tmp_path), ProgressReader(tmp_path)
    folder.run_start(START)
    logger = logging.getLogger("srfca test")
    with folder.noting_log(logger, "watch"):  # the folder of this file
        logger.warning("waiting for %s", "clients")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *details, **names: None
        with folder.noting_warnings():
            warnings.warn("lr is large", SrfcaWarning, stacklevel=1)
    with pytest.raises(InputError), folder.noting_failure():
        raise InputError("training diverged")
    progress = reader.read()
    assert progress is not None
    assert progress.state == "failed"
    assert live(progress).alarms == ["training diverged", "waiting for clients", "lr is large"]


def test_a_serving_server_shows_disconnected_clients(tmp_path: Path) -> None:
    folder = ProgressFolder(tmp_path)
    folder.run_start(START)
    folder.serving(list("abcdef"), list("abcd"))
    progress = ProgressReader(tmp_path).read()
    assert progress is not None
    assert live(progress).title == "Serving"
    assert live(progress).alarms == ["Not connected, or busy: e, f."]


def test_connected_and_missing_clients_are_counted_beyond_the_names_in_the_file(
    tmp_path: Path,
) -> None:
    names = [f"client-{number}" for number in range(1000)]
    folder, reader = ProgressFolder(tmp_path), ProgressReader(tmp_path)
    folder.run_start(replace(START, client_ids=tuple(names[:990])))
    replies = tuple(MissingReply(name, "Train", "timeout") for name in names[:300])
    folder.round_end(RoundEnd("GD 1", 1, 4, Budget(), replies))
    folder.note("write it now")
    progress = reader.read()
    assert progress is not None
    alarms = live(progress).alarms
    assert alarms[0].endswith("client-11 and 188 more.")
    assert alarms[1] == "100 more clients did not reply in the last round."
    folder.serving(names, names[:600])
    progress = reader.read()
    assert progress is not None
    [fact] = [fact for fact in live(progress).facts if fact.title == "connected now"]
    assert (fact.value, fact.remark) == ("600", "of 1,000 clients")
    assert any("client-611 and 388 more" in alarm for alarm in live(progress).alarms)


def test_a_refresh_is_shown_also_after_clients_have_joined(tmp_path: Path) -> None:
    folder, reader = ProgressFolder(tmp_path), ProgressReader(tmp_path)
    folder.run_start(START)
    folder.stage_end(stage("ONE_SHOT", 0, 0, 0, 1, 1, 1))
    folder.serving(list("abcdefg"), list("abcdefg"))
    with folder.stage("REFRESH 1", 70):
        folder.round_end(RoundEnd("REFRESH 1", 1, 2, Budget()))
        folder.note("write it now")
        progress = reader.read()
        assert progress is not None
        assert live(progress).title == "Serving: REFRESH 1"
        assert live(progress).subtitle.startswith("round 1 of 2")
    folder.stage_end(stage("REFRESH 1", 0, 0, 1, 1, 1, 1, 0))
    folder.serving(list("abcdefg"), list("abcdefg"))
    progress = reader.read()
    assert progress is not None
    assert [line.name for line in live(progress).stages] == ["REFRESH 1", "ONE_SHOT"]
    assert live(progress).subtitle == "New clients are placed as they connect."
    Source(tmp_path).page()


def test_killed_and_active_runs_are_distinguished(tmp_path: Path) -> None:
    ProgressFolder(tmp_path).run_start(START)
    path = tmp_path / PROGRESS / NOW
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": gone.pid}))
    progress = ProgressReader(tmp_path).read()
    assert progress is not None
    assert progress.state == "killed"
    assert "no longer exists" in live(progress).alarms[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (stage_file(0, "safetensors"), b"\x08\x00\x00\x00\x00\x00\x00\x00{}"),
        (stage_file(0, "json"), b"[]"),
        (START_FILE, b"0.5"),
        (START_FILE, b'{"experiment": "", "started": 1, "client_ids": [], "other": 1}'),
        (NOW, b"{"),
    ],
)
def test_damaged_files_are_waited_for(tmp_path: Path, name: str, content: bytes) -> None:
    folder = ProgressFolder(tmp_path)
    folder.run_start(START)
    folder.stage_end(stage("ONE_SHOT", 0, 0, 0, 1, 1, 1))
    assert ProgressReader(tmp_path).read() is not None
    (tmp_path / PROGRESS / name).write_bytes(content)
    assert ProgressReader(tmp_path).read() is None
    assert "Waiting for the run" in str(Source(tmp_path).look().box())


def test_a_run_continues_when_progress_cannot_be_written(tmp_path: Path) -> None:
    folder = ProgressFolder(tmp_path)
    folder.remove()
    with pytest.warns(SrfcaWarning, match="progress is no longer written"):
        folder.run_start(START)
    folder.run_failed(KeyboardInterrupt())


def test_wrong_folders_and_ports_are_refused(tmp_path: Path) -> None:
    missing = srfca("watch", str(tmp_path / "nothing"))
    assert missing.returncode == 2
    assert "there is no folder" in missing.stderr
    assert "holds no run" in srfca("watch", str(tmp_path)).stderr
    ProgressFolder(tmp_path)
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        done = srfca("watch", str(tmp_path), "--port", str(port))
    assert done.returncode == 2
    assert f"port {port} of 127.0.0.1 is taken" in done.stderr
    assert "cannot listen" in srfca("watch", str(tmp_path), "--host", "192.0.2.1").stderr


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "srfca.watch.server")
    assert "pip install 'srfca[watch]'" in srfca("watch", str(tmp_path)).stderr


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    ProgressFolder(tmp_path).run_start(START)
    code = (
        "import signal, sys, webbrowser; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "webbrowser.open = lambda url: print('opened', url, flush=True);"
        f"sys.argv = ['srfca', 'watch', {str(tmp_path)!r}, '--port', '0', '--open'];"
        "from srfca.cli.app import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    url = process.stdout.readline().split()[2]
    assert process.stdout.readline().split() == ["opened", url]
    assert "Running" in get(url)
    with pytest.raises(urllib.error.HTTPError, match="400"):
        get(url, Host="evil.example")
    stream = urllib.request.urlopen(f"{url}events", timeout=WAIT_SECONDS)
    assert stream.readline() == b"event: status\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT_SECONDS)
    stream.close()
    assert (process.returncode, errors) == (0, "")


class Watcher(Monitor):
    """Makes a run wait until the page shows what it did."""

    def __init__(self, driver: Any) -> None:
        self.driver, self.stages = driver, 0

    def stage_end(self, stage: Stage) -> None:
        self.stages += 1
        count = str(self.stages)  # trials of other answers are counted, but not listed
        wait_for(self.driver, "#live .facts div:first-child dd", count)
        if stage.name.startswith(("ONE_SHOT", "RECLUSTER")):
            wait_for(self.driver, "#live .stages tbody tr", stage.name)
        wait_for(self.driver, "#run-found h2", "What is known so far")


def wait_for(driver: Any, selector: str, text: str) -> None:
    """Wait until an element of the page has a text."""
    wait_until(
        driver,
        "return [...document.querySelectorAll(arguments[0])]"
        ".some((e) => e.textContent.includes(arguments[1]))",
        selector,
        text,
    )


def test_the_page_follows_a_run_and_ends_with_its_report(tmp_path: Path) -> None:
    require_browser()
    folder = ProgressFolder(tmp_path, "digits")
    with served(tmp_path) as url, browser() as driver:
        look(driver, 380)
        forget(driver)
        driver.get(url)
        wait_for(driver, "#live h2", "Starting")
        wait_for(driver, "#content", "No stage is done yet")
        watcher = Watcher(driver)
        result = small_run([folder, watcher])
        assert watcher.stages == len(result.history)
        wait_for(driver, "#live h2", "Saving the result")
        overflow = "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
        assert driver.execute_script(overflow) <= 0
        look(driver, 1280, dark=True)
        result.save(tmp_path)
        folder.remove()
        wait_for(driver, "#live h2", "Finished")
        wait_for(driver, "#run-found h2", "What was found")
        assert draw_all(driver) >= 3
        assert driver.title == "Finished · SR-FCA, seed 0"
        assert problems(driver) == []
        assert all(asked.startswith(url) for asked in requests(driver))
        driver.get("about:blank")  # ends the connection
