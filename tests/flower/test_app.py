"""The app that ``srfca flower new`` writes."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import torch
from flwr.app import Context, RecordDict
from safetensors.torch import load_model

from srfca import SRFCA, InputError, LocalTraining, Result, models
from srfca.apps import new_app
from srfca.flower.settings import Settings, configure
from tests.flower.grid import LocalGrid

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-digits"


def test_the_example_is_a_new_app(tmp_path: Path) -> None:
    folder = tmp_path / "flower-digits"
    command = [sys.executable, "-m", "srfca", "flower", "new", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for path in sorted(EXAMPLE.rglob("*.*")):
        if path.is_file() and "__pycache__" not in path.parts:
            assert (folder / path.relative_to(EXAMPLE)).read_text() == path.read_text()
    with pytest.raises(InputError, match="is not empty"):
        new_app(folder)


def test_an_app_has_the_name_of_its_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lower-case letters, digits and dashes, not 'My App'"):
        new_app(tmp_path / "My App")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file is a file"):
        new_app(tmp_path / "file")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder without files")
def test_a_folder_that_cannot_be_written_gives_one_line() -> None:
    command = [sys.executable, "-m", "srfca", "flower", "new", "/proc/my-app"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("srfca: cannot write to /proc/my-app")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["class", "srfca", "json"])
def test_a_name_that_python_uses_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"'{name}' is a keyword or an installed module"):
        new_app(tmp_path / name)


def test_the_settings_of_a_new_app_are_valid(tmp_path: Path) -> None:
    [path, *_] = new_app(tmp_path / "my-app")[2:]
    table = tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["config"]["srfca"]
    method, settings = configure(SRFCA(), {f"srfca.{key}": table[key] for key in table})
    assert method == SRFCA(
        refine_steps=1, local=LocalTraining(steps=60, local_steps=30, batch_size=10, lr=0.5)
    )
    assert settings == Settings(num_clients=8, timeout=600.0, out="results/0")


def test_a_new_app_keeps_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has a result with models, and each client the model that it was sent."""
    [_, _, path, *_] = new_app(tmp_path / "kept-app")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(path.parent))
    client, server = (import_module(f"kept_app.{name}") for name in ("client", "server"))
    grid = LocalGrid(client.app, range(4))
    for context in grid.contexts.values():
        context.node_config["num-partitions"] = 4
    table = tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["config"]["srfca"]
    config = {f"srfca.{key}": value for key, value in table.items()} | {"srfca.num-clients": 4}
    server.app(
        grid,
        Context(run_id=7, node_id=0, node_config={}, state=RecordDict(), run_config=config),
    )
    result = Result.load(tmp_path / "results" / "7")
    x = torch.rand(5, 64)
    for number in range(4):
        kept = models.mlp(64, 32, 10)().eval()
        load_model(kept, str(tmp_path / "models" / f"client-{number}.safetensors"))
        with torch.no_grad():
            torch.testing.assert_close(kept(x), result.module(str(number))(x))
    assert result.predict(x, client="0").shape == (5,)


def test_a_disk_that_cannot_be_written_to_gives_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: Path, *arguments: object, **options: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(InputError, match=r"cannot write to .*app: Read-only file system"):
        new_app(tmp_path / "app")
