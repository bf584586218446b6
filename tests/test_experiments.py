from __future__ import annotations

from dataclasses import replace

import pytest

from srfca import Work
from srfca.distances import Side
from srfca.errors import InputError
from srfca.experiments import config, runner
from srfca.methods import SRFCA
from srfca.methods.rounds import local_training
from srfca.methods.run import Run
from srfca.methods.sr_fca import recluster, trimmed_mean_gd
from srfca.random import Key


def test_every_preset_loads_and_says_what_it_is() -> None:
    assert {"synthetic", "rotated-digits"} <= set(config.names())
    for name in config.names():
        experiment = config.load(name)
        assert experiment.description
        for method in config.METHODS:
            assert runner.method(experiment, method).work.steps >= 1


def test_synthetic_has_the_papers_numbers() -> None:
    experiment = config.load("synthetic")
    assert experiment.arguments("data") == {
        "num_clients": 100, "samples": 100, "dimension": 1000, "clusters": 2, "noise": 0.001,
    }  # fmt: skip
    method = runner.method(experiment, "sr-fca")
    assert (method.refine_steps, method.distance, method.work.steps) == (1, "l2", 280)
    assert (method.threshold, method.work.batch_size) == ("auto", None)


def test_settings_reach_what_they_name() -> None:
    experiment = config.load("rotated-digits").set([
        "trim=0.2", "threshold=1.5", "work.lr=0.5", "hidden=32,16", "batch_size=none",
        "participation=0.5", "resample=true", "merge_threshold = auto",
    ])  # fmt: skip
    method = runner.method(experiment, "sr-fca")
    assert (method.trim, method.threshold, method.merge_threshold) == (0.2, 1.5, "auto")
    assert method.work == Work(steps=200, batch_size=None, lr=0.5, resample=True)
    assert method.resample, "a bare name is set wherever it is known"
    assert runner.method(experiment, "global").participation == method.participation == 0.5
    assert experiment.arguments("model")["hidden"] == (32, 16)
    one = config.load("rotated-digits").set(["sr-fca.participation=0.5"])
    assert runner.method(one, "global").participation == 1.0


def test_a_method_may_train_in_its_own_way() -> None:
    experiment = config.load("rotated-digits").set(["oracle.lr=0.25", "oracle.steps=7"])
    common = runner.method(experiment, "global").work
    assert runner.method(experiment, "oracle").work == replace(common, lr=0.25, steps=7)
    changed = experiment.set(["lr=0.125"])
    assert runner.method(changed, "oracle").work == replace(common, lr=0.125, steps=7)
    assert runner.method(changed, "global").work == replace(common, lr=0.125)
    within = config.load("rotated-digits").set(["oracle.lr=0.25", "lr=0.5"])
    assert runner.method(within, "oracle").work.lr == 0.5


def test_where_clusters_are_known_synthetic_is_solved_by_all_who_know_them() -> None:
    """Nobody has a rate too low to get there in the preset's steps."""
    experiment = config.load("synthetic").set(["num_clients=20", "dimension=100", "inputs=100"])
    clients = runner.federation(experiment, 3)
    assert clients.data.truth is not None
    for name in (
        "sr-fca",
        "oracle",
        "cfl",
        "hierarchical",
        "fesem",
        "one-shot-kmeans",
        "hypcluster",
    ):
        found = runner.run(experiment, name, clients, seed=3)
        assert float(found.scores.loss.mean()) < 1.5e-6, name


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trimm=0.2", "unknown setting 'trimm': did you mean 'trim'"),
        ("work.lrr=0.2", "unknown setting 'work.lrr': did you mean 'work.lr'"),
        ("zzzzzz=1", "unknown setting 'zzzzzz': there are"),
        ("trim", "key=value"),
        ("trim=a lot", "trim must be a number, not 'a lot'"),
        ("steps=2.5", "steps must be a whole number, not '2.5'"),
        ("batch_size=some", "batch_size must be 'none' or a whole number"),
        ("resample=maybe", "resample must be true or false"),
        ("hidden=a,b", "hidden must be a list of whole numbers"),
        ("seed=3", "unknown setting 'seed'"),
    ],
)
def test_bad_settings(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        config.load("rotated-digits").set([setting])


def test_unknown_names() -> None:
    with pytest.raises(InputError, match="unknown experiment 'rotated-digit': did you mean"):
        config.load("rotated-digit")
    with pytest.raises(InputError, match="unknown method 'srfca': did you mean 'sr-fca'"):
        runner.method(config.load("synthetic"), "srfca")


def test_numbers_of_toml_are_checked_too() -> None:
    assert config.parse(3, float, "x") == 3.0
    assert config.parse(True, bool, "x") is True
    assert config.parse([1, 2], tuple[int, ...], "x") == (1, 2)
    for value, kind in ((2.5, int), (True, int), (True, float), (1, bool)):
        with pytest.raises(InputError, match="x must be"):
            config.parse(value, kind, "x")


def test_synthetic_is_solved_as_well_as_on_the_true_clusters() -> None:
    """The paper's setting at a fifth of its dimension: exact, with a loss near sigma squared."""
    settings = ["dimension=200", "inputs=200", "samples=60", "num_clients=40"]
    experiment = config.load("synthetic").set(settings)
    clients = runner.federation(experiment, seed=0)
    row = runner.run(experiment, "sr-fca", clients, seed=0).row()
    assert (row["num_clusters"], row["misclustering"], row["ari"]) == (2, 0.0, 1.0)
    assert row["loss"] < 2e-6
    assert row["distance_to_optimum"] < 0.01
    assert clients.data.truth is not None
    oracle = trimmed_mean_gd(
        runner.method(experiment, "sr-fca"), clients.initial(0), clients.data.truth,
        r=1, run=Run(clients, seed=0),
    )  # fmt: skip
    ceiling = float(clients.scores(oracle.client_models, range(40)).loss.mean())
    assert row["loss"] <= 2 * ceiling
    alone = runner.run(experiment, "local", clients, seed=0).row()
    assert alone["loss"] > 1
    assert alone["num_clusters"] is alone["misclustering"] is alone["ari"] is None


def test_distances_of_poor_local_models_mislead() -> None:
    """The figure of docs/sr_fca.md: plain RECLUSTER moves well-placed clients of seed 4."""
    experiment = config.load("synthetic")
    clients = runner.federation(experiment, seed=4)
    truth = clients.data.truth
    assert truth is not None
    checked = runner.method(experiment, "sr-fca")
    plain = replace(checked, threshold=1.0)
    w0 = clients.initial(4)
    w = local_training(clients, w0, checked.work, Key(4, "one_shot"))
    own, run = Side.clients(clients, w), Run(clients, seed=4)
    trained = trimmed_mean_gd(checked, w0, truth, r=1, run=run)
    assert recluster(plain, own, trained).partition.misclustering(truth) == pytest.approx(0.19)
    assert recluster(checked, own, trained).partition == truth


def test_what_a_method_is_given_is_what_the_preset_says() -> None:
    method = runner.method(config.load("rotated-digits"), "sr-fca")
    assert isinstance(method, SRFCA)
    assert method == SRFCA(refine_steps=2, work=Work(steps=200, batch_size=10, lr=0.5))
