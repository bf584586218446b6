"""``srfca export``, and how a saved run is found."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from srfca import InputError, Result
from srfca.experiments.saved import find
from tests.cli.command import QUICK, srfca


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The --out of a comparison of three runs."""
    folder = tmp_path_factory.mktemp("runs")
    arguments = ["--methods", "global,ifca", "--k", "2,3", "--jobs", "1", "--out", str(folder)]
    done = srfca("compare", "rotated-digits", *QUICK, "--set", "fine_tune_steps=2", *arguments)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_run_is_found_by_the_beginning_of_its_name(runs: Path) -> None:
    run = find(runs / "global")
    assert run.name.startswith("global-seed0-")
    assert find(run) == run
    with pytest.raises(InputError, match=r"could be any of 2 runs: name one of .*ifca-k2.*ifca-k3"):
        find(runs / "ifca")
    with pytest.raises(InputError, match="could be any of 3 runs"):
        find(runs)
    for path in (runs / "local", runs / "none" / "global"):
        with pytest.raises(InputError, match="there is no run"):
            find(path)
    (runs / "empty").mkdir(exist_ok=True)
    with pytest.raises(InputError, match=r"empty holds no run: it has no result\.json"):
        find(runs / "empty")


def test_the_models_of_a_run_are_written(runs: Path, tmp_path: Path) -> None:
    done = srfca("export", str(runs / "ifca-k2"), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    names = ["cluster-0.safetensors", "cluster-1.safetensors", "models.json"]
    assert [Path(line).name for line in lines[:3]] == names
    assert "models of their own" in lines[3]
    by_default = srfca("export", str(runs / "ifca-k2"))
    assert by_default.stdout.splitlines()[:3] == [
        str(find(runs / "ifca-k2") / "models" / name) for name in names
    ]


def test_one_client_or_all_of_them(runs: Path, tmp_path: Path) -> None:
    run = str(runs / "global")
    done = srfca("export", run, "--format", "torch", "--client", "3", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    state = torch.load(tmp_path / "client-3.pt", weights_only=True)
    expected = Result.load(find(runs / "global")).state_dict(client="3")
    assert all(torch.equal(state[key], expected[key]) for key in expected)
    everyone = srfca("export", run, "--all-clients", "--out", str(tmp_path / "all"))
    assert len(everyone.stdout.splitlines()) == 12 + 1
    both = srfca("export", run, "--all-clients", "--client", "3", "--out", str(tmp_path))
    assert (both.returncode, both.stderr) == (
        2, "srfca: --all-clients goes without --client and --cluster\n",
    )  # fmt: skip
    wrong = srfca("export", run, "--cluster", "7", "--out", str(tmp_path))
    assert "there is no cluster 7" in wrong.stderr


def test_a_model_of_ones_own_is_named_where_it_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self): super().__init__(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    experiment = tmp_path / "mine.toml"
    experiment.write_text(
        '[data]\nname = "rotated_digits"\nnum_clients = 4\n'
        '[model]\nname = "nets:Net"\n[local_training]\nsteps = 5\n'
    )
    run, out = tmp_path / "run", str(tmp_path / "out")
    for arguments in (
        ("run", str(experiment), "--method", "global", "--out", str(run)),
        ("export", str(run), "--out", out),
    ):
        done = srfca(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    with pytest.raises(InputError, match=r"there is no module 'nets'.*model=factory"):
        Result.load(run).module(0)
