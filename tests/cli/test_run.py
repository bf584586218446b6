"""``srfca run`` and ``srfca resume``."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from srfca import Result
from srfca.analysis import Analysis
from srfca.data import rotated_digits
from srfca.locks import locked
from tests.cli.command import QUICK, srfca
from tests.experiments.small import NETWORKS, write_flights, write_sensors

METHOD = '''
from dataclasses import dataclass
from typing import ClassVar

from srfca.methods import Answer, Method, Run
from srfca.methods._common.rounds import one_cluster
from srfca.parameters import constrained


@dataclass(frozen=True, kw_only=True)
class Untrained(Method):
    """Give every client the initial model, scaled."""

    name: ClassVar[str] = "Untrained"
    clustered: ClassVar[bool] = False

    scale: float = constrained(1.0, at_least=0)

    def solve(self, run: Run) -> Answer:
        everyone = one_cluster(run)
        answer = Answer(everyone.labels, self.scale * run.initial_model().unsqueeze(0))
        run.record("UNTRAINED", everyone, answer.client_models)
        return answer
'''


def test_json_is_one_object_and_nothing_else() -> None:
    done = srfca("run", "rotated-digits", "--seed", "3", "--json", *QUICK)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    metrics = json.loads(done.stdout)
    assert metrics["experiment"] == "rotated-digits"
    assert metrics["method"] == "sr-fca"
    assert metrics["seed"] == 3
    assert (metrics["num_clusters"], metrics["misclustering"], metrics["ari"]) == (2, 0.0, 1.0)
    assert 0.5 < metrics["accuracy"] <= 1
    assert metrics["labels"] == [0, 1] * 6
    assert metrics["loss"] > 0
    assert metrics["seconds"] > 0


def test_quick_and_fine_tuning() -> None:
    done = srfca(
        "run", "rotated-digits", "--quick", "--set", "steps=2", "--fine-tune", "3", "--json"
    )
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    assert metrics["clients"] == 12
    assert metrics["tuned_accuracy"] is not None


def test_run_shows_the_stages_and_the_reason_for_the_threshold() -> None:
    done = srfca("run", "rotated-digits", *QUICK)
    assert "ONE_SHOT" in done.stdout
    assert "MERGE 1" in done.stdout
    assert "Threshold: at " in done.stdout
    assert "SR-FCA found 2 clusters of 6, 6 clients." in done.stdout
    assert "The clusters are exactly the true ones." in done.stdout
    assert "Doubtful" not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Use --out DIR to keep the models")


def test_run_warns_of_doubtful_clusters() -> None:
    settings = ["--set", "steps=7", "--set", "num_clients=20", "--seed", "4"]
    done = srfca("run", "rotated-digits", *settings)
    doubt = "This is doubtful: 4 clusters may do as well: "
    assert doubt in done.stdout.splitlines()[-2], done.stdout
    assert done.stdout.count("4 clusters may do as well") == 1


def test_a_single_cluster_is_not_doubtful_and_says_what_was_considered() -> None:
    done = srfca("run", "rotated-digits", "--set", "rotations=1")
    assert "Chose one model for all (accuracy" in done.stdout, done.stdout
    assert "every client alone (accuracy" in done.stdout
    assert "No groups found: one model serves all clients; " in done.stdout
    assert "training alone is " in done.stdout
    assert "Doubtful" not in done.stdout


def test_three_groups_of_sensors_are_found_by_one_command(tmp_path: Path) -> None:
    done = srfca("run", "--data", str(write_sensors(tmp_path)), "--model", "mlp")
    assert done.returncode == 0, done.stderr
    assert "SR-FCA found 3 clusters of 8, 8, 8 clients" in done.stdout
    assert "validation accuracy" in done.stdout
    assert "test" not in done.stdout


def test_a_training_that_failed_is_reported() -> None:
    settings = ["--set", "lr=1e4", "--method", "GLOBAL", "--json"]
    for validation in ("0.1", "0"):
        done = srfca(
            "run", "rotated-digits", *QUICK, *settings, "--set", f"validation={validation}"
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["method"] == "global"
        assert done.stderr.startswith("srfca: warning: training failed: Global ends with a loss of")
        assert len(done.stderr.splitlines()) == 1


def test_a_table_with_named_columns(tmp_path: Path) -> None:
    flights = ["run", "--data", str(write_flights(tmp_path)), "--set", "steps=100"]
    columns = ["--client", "dest", "--target", "gained", "--features", "dep_delay,carrier"]
    done = srfca(*flights, *columns, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "missing values in 1 column of a table of 720 rows: 'gained' (1)" in done.stderr
    drawn = ["--missing", "drop", "--test", "0.25"]
    done = srfca(*flights, *columns, *drawn, "--json", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    assert metrics["labels"] == [0, 1] * 6
    assert metrics["scored_on"] == "test"
    assert metrics["loss"] < 0.3, "targets are standardized: the mean has a loss of 1"
    schema = Result.load(tmp_path / "out").schema
    assert schema is not None
    assert schema.inputs == ("dep_delay", "carrier=AA", "carrier=UA")
    assert (schema.client, schema.target) == ("dest", "gained")


def test_what_is_unclear_in_a_table_is_asked_for(tmp_path: Path) -> None:
    flights = ["run", "--data", str(write_flights(tmp_path)), "--set", "steps=5"]
    done = srfca(*flights)
    assert "name the client column with client=... (--client on the command line)" in done.stderr
    named = [*flights, "--client", "dest", "--features", "dep_delay", "--method", "local", "--json"]
    done = srfca(*named, "--target", "late")
    assert done.returncode == 2
    assert "(--target-kind on the command line)" in done.stderr
    for kind, has_accuracy in (("classes", True), ("values", False)):
        done = srfca(*named, "--target", "late", "--target-kind", kind, "--no-standardize")
        assert done.returncode == 0, done.stderr
        assert (json.loads(done.stdout)["accuracy"] is not None) == has_accuracy
    columns = ["--client", "dest", "--target", "gained", "--missing", "drop"]
    everything = srfca(*flights, *columns)
    assert "column 'day' has 719 different strings" in everything.stderr


def test_a_method_by_module_and_class(tmp_path: Path) -> None:
    (tmp_path / "my_methods.py").write_text(METHOD)
    arguments = ["run", "rotated-digits", *QUICK, "--method", "my_methods:Untrained"]
    done = srfca(*arguments, "--json", "--set", "scale=0", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    assert (metrics["method"], metrics["name"]) == ("my_methods:Untrained", "Untrained")
    assert metrics["local_steps"] == 0
    assert not Result.load(tmp_path / "out").models.any(), "the bare setting reached the method"
    shown = srfca(*arguments, "--set", "my_methods:Untrained.scale=0.5", cwd=tmp_path)
    assert "rotated-digits, Untrained, seed 0" in shown.stdout, shown.stderr
    wrong = srfca(*arguments, "--set", "scale=-1", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "scale must be at least 0, not -1.0" in wrong.stderr


def test_an_experiment_in_a_file_with_a_model_in_a_module(tmp_path: Path) -> None:
    network = NETWORKS.replace("nn.Linear(2, 16)", "nn.Flatten(), nn.Linear(64, 16)")
    (tmp_path / "nets_f.py").write_text(network.replace("16, 4", "16, 10"))
    (tmp_path / "turned.toml").write_text(
        'clusters = "2"\n[data]\nname = "rotated_digits"\nrotations = 2\nnum_clients = 6\n'
        '[model]\nname = "nets_f:network"\n[local_training]\nsteps = 5\n'
    )
    done = srfca("run", "turned.toml", "--method", "local", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    assert (metrics["experiment"], metrics["local_steps"]) == ("turned", 6 * 5)


def test_a_killed_run_resumes(tmp_path: Path) -> None:
    command = ["run", "rotated-digits", "--set", "num_clients=12", "--set", "steps=100"]
    complete, parts = ["--out", str(tmp_path / "complete")], ["--out", str(tmp_path / "parts")]
    assert srfca(*command, *complete).returncode == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "srfca", *command, *parts, "--journal"], stdout=subprocess.DEVNULL
    )
    checkpoints = tmp_path / "parts" / "journal"
    while not list(checkpoints.glob("*.checkpoint.safetensors")):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (tmp_path / "parts" / "result.json").exists()
    assert srfca("resume", str(tmp_path / "parts")).returncode == 0
    expected, resumed = (Result.load(tmp_path / name) for name in ("complete", "parts"))
    assert torch.equal(resumed.models, expected.models)
    assert resumed.labels.tolist() == expected.labels.tolist()
    assert resumed.budget == expected.budget
    metrics = tmp_path / "parts" / "run.json"
    assert json.loads(metrics.read_text())["seconds"] is None, "it is unknown how long it took"
    other = srfca(*command, *parts, "--journal", "--method", "ifca")
    assert other.returncode == 2
    assert "with other settings: choose another --out" in other.stderr
    assert srfca("resume", str(tmp_path / "parts")).returncode == 0
    assert "--journal needs --out" in srfca(*command, "--journal").stderr
    no_journal = srfca("resume", str(tmp_path / "complete"))
    assert no_journal.returncode == 2
    assert "holds no run with a journal, which 'srfca run --journal" in no_journal.stderr
    assert "Errno" not in no_journal.stderr
    for damaged in ('{"seed": 3}', "[]", "{"):
        (tmp_path / "parts" / "command.json").write_text(damaged)
        refused = srfca("resume", str(tmp_path / "parts"))
        assert refused.returncode == 2
        assert "command.json is damaged" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_the_answer_comes_last(tmp_path: Path) -> None:
    done = srfca("run", "rotated-digits", *QUICK, "--reference", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == f"A line for each client: {tmp_path / 'clusters.csv'}"
    assert lines[-2].startswith("SR-FCA found 2 clusters of 6, 6 clients. Mean accuracy on test")
    assert "points higher than with one model for all" in lines[-2]
    [head] = [line for line in lines if line.startswith("| cluster ")]
    assert "members" in head
    assert "points over one model" in head
    assert "confidence (lowest)" in head
    assert "What differs" in lines
    with (tmp_path / "clusters.csv").open() as file:
        clients = list(csv.DictReader(file))
    assert len(clients) == 12
    assert all(client["global_accuracy"] and client["alone_accuracy"] for client in clients)
    saved = json.loads((tmp_path / "run.json").read_text())
    assert saved["client_ids"] == [client["client"] for client in clients]
    assert [str(label) for label in saved["labels"]] == [client["cluster"] for client in clients]
    assert Analysis.load(tmp_path).sentence() in lines[-2]


def test_what_differs_is_not_asked_for(tmp_path: Path) -> None:
    done = srfca("run", "rotated-digits", *QUICK, "--no-differences", "--out", str(tmp_path))
    assert "What differs" not in done.stdout
    assert Analysis.load(tmp_path).differences is None
    assert "Use --reference to compare with one model for all" in done.stdout


def test_json_names_the_clients() -> None:
    done = srfca("run", "rotated-digits", *QUICK, "--method", "local", "--json")
    metrics = json.loads(done.stdout)
    assert len(metrics["client_ids"]) == len(metrics["client_losses"]) == 12
    assert metrics["answer"]["verdict"] == "none"


def test_json_has_the_answer() -> None:
    done = srfca("run", "rotated-digits", *QUICK, "--reference", "--json")
    answer = json.loads(done.stdout)["answer"]
    assert answer["sentence"].startswith("SR-FCA found 2 clusters of 6, 6 clients.")
    assert len(answer["table"]["confidence"]) == len(answer["table"]["global_accuracy"]) == 12


def test_samples_of_a_users_data_are_shown_only_on_demand(tmp_path: Path) -> None:
    def samples(*arguments: str) -> list[int]:
        done = srfca("run", *arguments, "--out", str(tmp_path), "--overwrite")
        assert done.returncode == 0, done.stderr
        differences = Analysis.load(tmp_path).differences
        assert differences is not None
        return [len(part.sample_inputs) for part in differences.by_cluster]

    data = rotated_digits(num_clients=12, rotations=2)
    x, y = data.train.x.numpy(), data.train.y.numpy()
    client = np.repeat(np.arange(12), data.train.sizes.numpy())
    np.savez(tmp_path / "images.npz", x=x, y=y, client=client)
    own = ["--data", str(tmp_path / "images.npz"), "--set", "steps=40", "--set", "lr=0.02"]
    assert samples("rotated-digits", *QUICK) == [6, 6]
    assert samples("rotated-digits", *QUICK, "--sample-inputs", "0") == [0, 0]
    assert samples(*own) == [0, 0]
    assert samples(*own, "--sample-inputs", "2") == [2, 2]


def test_the_number_of_clusters_is_asked_for(tmp_path: Path) -> None:
    data = ["--data", str(write_sensors(tmp_path)), "--set", "steps=2", "--method", "ifca"]
    guessed = srfca("run", *data)
    assert "IFCA needs the number of clusters, which is unknown; using k=2" in guessed.stderr
    given = srfca("run", *data, "--k", "3")
    assert given.stderr == ""
    assert "| IFCA, K=3 |" in given.stdout
    known = srfca("run", "rotated-digits", *QUICK, "--method", "ifca")
    assert "nobody knows" not in known.stderr
    refused = srfca("run", "rotated-digits", *QUICK, "--k", "3")
    assert "SR-FCA has no setting 'k'" in refused.stderr


def test_a_method_without_clusters_says_so() -> None:
    done = srfca("run", "rotated-digits", *QUICK, "--method", "global")
    assert done.returncode == 0, done.stderr
    assert "| cluster " not in done.stdout
    assert done.stdout.splitlines()[-2] == (
        "Global does not look for clusters among its 12 clients."
    )


def test_another_result_is_not_replaced_without_an_error(tmp_path: Path) -> None:
    command = ["run", "rotated-digits", "--set", "steps=2", "--set", "num_clients=4"]
    local, out = ["--method", "local"], ["--out", str(tmp_path / "out")]
    assert srfca(*command, *local, *out).returncode == 0
    assert srfca(*command, *local, *out).returncode == 0, "the same run again"
    before = (tmp_path / "out" / "result.json").read_bytes()
    for options in (["--seed", "1"], ["--journal", "--seed", "1"], ["--set", "lr=0.2"]):
        refused = srfca(*command, *local, *out, *options)
        assert refused.returncode == 2
        assert "holds another result, or a damaged one: choose another --out, or" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert (tmp_path / "out" / "result.json").read_bytes() == before
    journaled = [*command, *local, *out, "--seed", "1", "--overwrite", "--journal"]
    assert srfca(*journaled).returncode == 0
    assert Result.load(tmp_path / "out").seed == 1
    refused = srfca(*command, *local, *out, "--seed", "1")
    assert "holds a run with a journal: continue it with 'srfca resume" in refused.stderr
    assert srfca(*command, *local, *out, "--overwrite").returncode == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "analysis.json", "clusters.csv", "result.json", "run.json", "tensors.safetensors",
    ]  # fmt: skip
    assert "--overwrite needs --out" in srfca(*command, "--overwrite").stderr


def test_one_process_at_a_time_writes_a_folder(tmp_path: Path) -> None:
    command = ["rotated-digits", "--set", "steps=2", "--set", "num_clients=4"]
    with locked(tmp_path):
        refused = srfca("run", *command, "--out", str(tmp_path))
    assert refused.returncode == 2
    assert "is in use by process" in refused.stderr
    (tmp_path / ".result.json.0123abcd.tmp").touch()
    assert srfca("run", *command, "--method", "local", "--out", str(tmp_path)).returncode == 0
    assert not list(tmp_path.glob(".*")), "temporary files of killed processes are removed"


def test_literal_is_the_algorithm_of_the_paper() -> None:
    literal = ("run", "rotated-digits", "--literal", *QUICK)
    done = srfca(*literal, "--set", "threshold=45%", "--set", "refine_steps=2")
    assert done.returncode == 0, done.stderr
    assert "rotated-digits, SR-FCA (literal), seed 0" in done.stdout
    assert "MERGE 2" in done.stdout, "no early stop"
    assert "DECIDE" not in done.stdout, "no decision on held-out data"
    wrong = srfca(*literal, "--method", "ifca")
    assert wrong.returncode == 2
    assert "--literal is for SR-FCA, not for ifca" in wrong.stderr
