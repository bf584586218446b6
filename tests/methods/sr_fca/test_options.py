"""The parameters of SR-FCA: what each does, which values are allowed, and the paper's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from srfca import SRFCA, InputError, LocalTraining, Simulation
from srfca.methods import Run
from srfca.methods._common.rounds import train_locally
from srfca.methods.sr_fca.thresholds import Fixed
from srfca.methods.sr_fca_literal import LiteralSRFCA
from srfca.models import linear
from srfca.random import Key
from srfca.testing import ReferenceFederation
from tests import examples
from tests.methods.helpers import scores
from tests.methods.sr_fca.federations import LOCAL, OPTIONS, regressions


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_finds_the_clusters(name: str) -> None:
    federation = regressions()
    result = SRFCA(local=LOCAL, **OPTIONS[name]).fit(federation, seed=1)
    assert result.partition == federation.data.truth
    test_loss = scores(federation, result.client_models).loss.mean()
    alone = train_locally(Run(federation, seed=1), LOCAL, Key(1, "one_shot"))
    assert test_loss < scores(federation, alone.rows).loss.mean()


def test_gradients_are_one_full_batch_step_of_models() -> None:
    federation = Simulation(
        examples.regression([20 + i % 3 for i in range(12)], clusters=3),
        examples.doubled(linear(4)),
    )
    one_step = LocalTraining(steps=30, local_steps=1, batch_size=None, lr=0.05)
    options = SRFCA(threshold=2.5, distance="l2", local=one_step, participation=0.5)
    models = options.fit(federation)
    gradients = replace(options, exchange="gradients").fit(federation)
    assert models.partition == gradients.partition
    torch.testing.assert_close(gradients.models, models.models, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["participation", "resample", "one-sided", "fedprox"])
@pytest.mark.parametrize("block_size", [1, 5])
def test_same_seed_same_result_as_the_reference(name: str, block_size: int) -> None:
    data = examples.regression([20 + i % 3 for i in range(12)], clusters=3)
    model = examples.doubled(linear(4))
    options = SRFCA(local=LOCAL, **OPTIONS[name])
    expected = options.fit(ReferenceFederation(data, model), seed=2)
    result = options.fit(Simulation(data, model, block_size=block_size), seed=2)
    assert np.array_equal(result.labels, expected.labels)
    torch.testing.assert_close(result.models, expected.models, rtol=1e-9, atol=1e-9)
    other = options.fit(Simulation(data, model), seed=3)
    assert not torch.allclose(result.models, other.models)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", -1.0), ("threshold", "x"), ("merge_threshold", -0.1),
        ("merge_threshold", "30%"), ("min_size", 0), ("refine_steps", -1), ("distance", "l_2x"),
        ("graph", "clique"), ("trim", 0.5), ("trim", -0.1), ("exchange", "model"),
        ("server_lr", 0.0), ("diameter", -1.0), ("participation", 0.0), ("participation", 1.5),
        ("one_shot_steps", 0), ("final_steps", -1), ("final_mu", -1.0), ("samples", 0),
        ("metric", "profiles"), ("all_pairs", -1),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_at_once(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"{name.split('_')[0]}"):
        SRFCA(**{name: value})  # type: ignore[arg-type]


def test_too_few_clients_are_refused() -> None:
    with pytest.raises(InputError, match="at least two clients"):
        SRFCA(local=LOCAL).fit(regressions(num_clients=1, clusters=1))
    with pytest.raises(InputError, match="min_size=13 is more than the 12 clients"):
        SRFCA(local=LOCAL, min_size=13).fit(regressions())
    with pytest.raises(InputError, match="held-out data"):
        SRFCA(local=LOCAL).fit(regressions(validation=0))


def test_as_in_paper_has_the_parameters_of_the_paper() -> None:
    options = SRFCA.as_in_paper(1.5, min_size=3, trim=0.2, refine_steps=2, local=LOCAL)
    assert isinstance(options, LiteralSRFCA)
    assert isinstance(options.rule, Fixed)
    assert (options.threshold, options.merge_threshold) == (1.5, None), "one lambda for both"
    assert (options.min_size, options.trim, options.refine_steps) == (3, 0.2, 2)
    assert (options.metric, options.samples, options.local) == ("distance", None, LOCAL)
    assert (options.restarts, options.trim_at_least, options.stops_early) == (0, 0, False)
    assert SRFCA.as_in_paper(1.5, merge_threshold=9.0).merge_threshold == 9.0
    assert SRFCA.as_in_paper(1.5) == LiteralSRFCA(threshold=1.5)


@pytest.mark.parametrize(
    "option", [{"threshold": "auto"}, {"merge_threshold": "auto"}, {"metric": "profile"}]
)
def test_the_literal_algorithm_has_nothing_automatic(option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"is not in the paper: .* use the method sr-fca"):
        LiteralSRFCA(**option)


def test_as_in_paper_needs_nothing_beyond_the_paper() -> None:
    """No held-out data, no subsample: ONE_SHOT, TrimmedMeanGD, RECLUSTER and MERGE alone."""
    federation = regressions(validation=0)
    options: dict[str, Any] = {"distance": "l2", "local": LOCAL}
    result = SRFCA.as_in_paper(2.5, refine_steps=3, **options).fit(federation)
    assert result.partition == federation.data.truth
    names = [stage.name for stage in result.history]
    stages = ("TRIMMED_MEAN_GD", "RECLUSTER", "MERGE")
    assert names == ["ONE_SHOT", *(f"{name} {step}" for step in (1, 2, 3) for name in stages)]
    assert result.history[0].notes["threshold"] == 2.5
    assert result.method == "SR-FCA (literal)"
    once = SRFCA.as_in_paper(2.5, **options).fit(federation)
    fixed = SRFCA(threshold=2.5, refine_steps=1, trim=0.1, trim_at_least=0, **options)
    assert torch.equal(once.models, fixed.fit(federation).models)


def test_a_client_of_a_removed_cluster_is_placed_in_the_end() -> None:
    """ONE_SHOT leaves out the small cluster; its clients are in one in the end."""
    federation = regressions(num_clients=14, clusters=3)
    result = SRFCA.as_in_paper(2.5, min_size=5, distance="l2", local=LOCAL).fit(federation)
    assert result.history[0].labels.count(-1) == 4
    assert (result.labels >= 0).all()
