"""The app that ``srfca flower new`` writes."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from srfca import SRFCA, InputError, LocalTraining
from srfca.apps import new_app
from srfca.flower.settings import Settings, configure

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
    assert settings == Settings(num_clients=8, timeout=600.0)
