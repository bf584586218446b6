"""Settings by other names, and settings without effect."""

from __future__ import annotations

import pytest

from srfca.errors import InputError
from srfca.experiments import config
from srfca.experiments.synonyms import OPTIONS, SYNONYMS, hint
from srfca.methods import METHODS
from srfca.methods.registry import method_key
from tests.experiments.small import ROUND_ROBIN, small_experiment


def test_synonyms_lead_to_settings_that_exist() -> None:
    experiment = config.load("rotated-digits")
    parts = [experiment.parameters(section) for section in experiment.sections]
    settings = {name for part in parts for name in part}
    assert set(SYNONYMS.values()) <= settings
    assert not set(SYNONYMS) & settings, "no setting is hidden by a synonym"
    assert not set(OPTIONS) & settings


@pytest.mark.parametrize(
    ("setting", "methods", "message"),
    [
        ("k=2", ["sr-fca"], "SR-FCA has no setting 'k', so .*; methods with .* 'k' are .*ifca"),
        ("n_clusters=2", ["sr-fca"], "SR-FCA has no setting 'n_clusters', so .* a setting 'k' are"),
        ("n_clusters=2", ["ifca"], "unknown setting 'n_clusters': did you mean 'k'"),
        ("k=2", ["sr-fca", "local"], "SR-FCA, Local have no setting 'k'"),
        ("trim=0.2", ["local"], "Local has no setting 'trim'.* are sr-fca"),
        ("learning_rate=1", ["sr-fca"], "unknown setting 'learning_rate': did you mean 'lr'"),
        ("epochs=3", ["sr-fca"], r"did you mean 'steps'\? \(training is counted in steps, each"),
        ("rounds=3", ["sr-fca"], r"did you mean 'steps'\? \(there are steps / local_steps rounds"),
        ("batch=3", ["sr-fca"], "did you mean 'batch_size'"),
        ("prox=0.1", ["sr-fca"], "did you mean 'mu'"),
        ("seed=3", ["sr-fca"], "unknown setting 'seed': use --seed"),
        ("ifca.k=2", ["sr-fca"], r"'ifca.k' would have no effect, because ifca does not run \(but"),
        ("IFCA.k=2", ["sr-fca"], "'ifca.k' would have no effect"),
        (f"{ROUND_ROBIN}.k=2", ["sr-fca"], "would have no effect"),
    ],
)  # fmt: skip
def test_settings_without_effect_are_refused(
    setting: str, methods: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        small_experiment().require_used([setting], methods)


@pytest.mark.parametrize(
    ("setting", "methods"),
    [
        ("k=2", ["sr-fca", "ifca"]),
        ("SR-FCA.trim=0.2", ["sr-fca"]),
        ("ifca.lr=0.2", ["ifca"]),
        ("mu=0.2", ["sr-fca"]),
        ("num_clients=4", ["local"]),
        ("data.num_clients=4", ["local"]),
        (f"{ROUND_ROBIN}.k=2", [ROUND_ROBIN]),
    ],
)
def test_settings_of_the_methods_that_run_are_accepted(setting: str, methods: list[str]) -> None:
    experiment = small_experiment().with_methods(methods)
    experiment.require_used([setting], methods)
    experiment.set([setting])


def test_methods_are_found_by_key_name_and_class_in_any_case() -> None:
    for key, method in METHODS.items().items():
        for name in (key, method.name, method.__name__):
            assert method_key(name) == method_key(name.upper()) == method_key(name.lower())
            assert METHODS[method_key(name)].name == method.name
    assert method_key("sr-fac") == "sr-fac"


def test_hints() -> None:
    assert hint("zzz", ["lr", "k"]) == "choose from k, lr"
    assert hint("lrr", ["lr"], "oracle.") == "did you mean 'oracle.lr'?"
    assert hint("learning_rate", ["steps"]) == "choose from steps"
