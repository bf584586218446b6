"""Evidence from held-out data: comparisons, and what is said of a decision."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca.federation import ClientScores
from srfca.methods.sr_fca.decision import (
    Decision,
    Evidence,
    compare,
    compare_losses,
    helps,
    out_of_reach,
    within_noise,
)
from srfca.methods.sr_fca.trials import helpful_weights


def accuracies(*values: float) -> ClientScores:
    count = len(values)
    return ClientScores(torch.ones(count), torch.tensor(values), torch.ones(count))


def losses(*values: float) -> ClientScores:
    return ClientScores(torch.tensor(values), None, torch.ones(len(values)))


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=20))
def test_a_comparison_is_antisymmetric_and_paired(pairs: list[tuple[float, float]]) -> None:
    first, second = (accuracies(*values) for values in zip(*pairs, strict=True))
    forward, backward = compare(first, second), compare(second, first)
    assert np.isclose(forward.gain, -backward.gain, atol=1e-6)
    assert np.isclose(forward.error, backward.error, atol=1e-6)


def test_a_comparison_ignores_clients_of_which_one_score_is_unknown() -> None:
    nan = float("nan")
    whole = compare(accuracies(0.5, 0.9, 0.7), accuracies(0.4, 0.6, 0.5))
    holes = compare(accuracies(0.5, 0.9, nan, 0.7), accuracies(0.4, 0.6, 0.1, 0.5))
    assert np.isclose(whole.gain, holes.gain)
    assert np.isclose(whole.t, holes.t)
    assert compare(accuracies(nan), accuracies(0.5)).t == 0
    assert compare(losses(nan, nan), losses(0.5, 1.0)).t == 0, "nobody replied"


def test_without_classes_losses_are_compared() -> None:
    better = compare(losses(1.0, 2.0, 3.0), losses(2.0, 4.5, 6.0))
    assert better.gain > 0
    assert better.t > 2
    outlier = compare(losses(1.0, 1.0, 1.0, 1.0), losses(0.9, 1.0, 1.1, 1e9))
    assert outlier.t < 2, "one client's loss does not decide"
    equal = losses(1.0, 1.0, 1.0, 1.0)
    assert compare(equal, losses(1.0, 1.0, 1.0, 1e9)).t == 0, "where the others are equal too"


def test_one_client_and_equal_scores_prove_nothing() -> None:
    assert compare(accuracies(0.9), accuracies(0.1)).t == 0
    assert compare(accuracies(0.5, 0.5), accuracies(0.5, 0.5)).t == 0
    assert compare(accuracies(0.5, 0.5), accuracies(0.25, 0.25)).t == 99


def test_a_decision_says_what_was_considered_and_how_sure_it_is() -> None:
    chosen = Evidence("2 clusters", accuracies(0.9, 0.8, 0.9, 0.8), "fine-tuned by 10 steps")
    plain = Evidence("2 clusters", accuracies(0.8, 0.8, 0.8, 0.8))
    one = Evidence("one model for all", accuracies(0.5, 0.6, 0.5, 0.6))
    close = Evidence("every client alone", accuracies(0.7, 0.9, 0.9, 0.8))
    sure = Decision.among(chosen, (one, plain, chosen))
    assert sure.runner_up is one, "the same clusters without fine-tuning are no rival"
    assert sure.warning is None
    assert "2 clusters, fine-tuned by 10 steps (accuracy 85.0%)" in sure.sentence
    assert "standard errors behind" in sure.sentence
    assert "also considered: 2 clusters (accuracy 80.0%)" in sure.sentence
    doubtful = Decision.among(chosen, (one, close, chosen), ("a", "b"))
    assert doubtful.runner_up is close
    assert doubtful.warning is not None
    assert "every client alone may do as well" in doubtful.warning
    assert "within noise" in doubtful.sentence
    assert doubtful.sentence.endswith("2 clients keep their own model beside them.")
    single = Decision.among(chosen, (chosen,), ("a",))
    assert single.sentence.endswith("1 client keeps its own model beside them.")
    assert single.warning is None
    assert json.loads(json.dumps(doubtful.notes()))["outliers"] == ["a", "b"]


def test_an_answer_that_fails_a_few_clients_is_not_said_to_be_as_good() -> None:
    """Gains are winsorized, so that two clients out of ten do not decide."""
    chosen = Evidence("one model for all", losses(*[0.010, 0.011] * 5))
    alone = Evidence("every client alone", losses(*[0.013, 0.014] * 5))
    clusters = Evidence("2 clusters", losses(*[0.010, 0.011] * 4, 0.3, 2.0))
    considered = (clusters, chosen, alone)
    assert Decision.among(chosen, considered).warning is None
    doubt = within_noise("2 clusters", 1.4)
    decision = replace(Decision.among(chosen, considered), doubt=doubt)
    assert decision.warning is not None
    assert decision.warning.startswith("2 clusters may do as well for most clients: ")
    assert decision.warning.endswith(", but with 22.7 times the mean loss")
    assert "; next was 2 clusters (loss 0.2384), " in decision.sentence, "the one in doubt"
    assert "also considered: every client alone" in decision.sentence
    assert decision.notes()["runner_up"] == "2 clusters"
    tuned = Evidence("one model for all", losses(*[0.001, 0.002] * 5), "fine-tuned by 5 steps")
    clusters = Evidence("2 clusters", losses(*[0.010, 0.011] * 5))
    decision = replace(Decision.among(tuned, (clusters, chosen, tuned, alone)), doubt=doubt)
    assert decision.warning == f"{doubt}, before fine-tuning"


def test_fine_tuning_helps_if_accuracy_and_loss_agree() -> None:
    def scored(accuracy: list[float], loss: list[float]) -> ClientScores:
        return ClientScores(torch.tensor(loss), torch.tensor(accuracy), torch.ones(len(loss)))

    before = scored([0.5, 0.6, 0.7, 0.6], [1.0, 1.2, 0.8, 1.1])
    both = scored([0.6, 0.6, 0.8, 0.7], [0.8, 1.0, 0.7, 0.9])
    assert helps(both, before)
    single = scored([0.5, 0.6, 0.7, 0.7], [0.8, 1.0, 0.7, 0.9])
    assert compare(single, before).t == 0
    assert not helps(single, before), "one client alone is no evidence"
    coarse = scored([0.5, 0.6, 0.8, 0.7], [0.8, 1.0, 0.7, 0.9])
    assert helps(coarse, before), "a little accuracy, and a clear loss"
    calibrated = scored([0.5, 0.6, 0.7, 0.5], [0.5, 0.6, 0.4, 0.6])
    assert compare_losses(calibrated, before).t > 2
    assert not helps(calibrated, before), "accuracy must not fall"
    noisy = scored([0.6, 0.6, 0.6, 0.7], [0.5, 0.6, 0.4, 0.6])
    assert 0 < compare(noisy, before).t < 1
    assert not helps(noisy, before), "losses count at most as much as accuracy"
    lucky = scored([0.5, 0.6, 0.7, 0.7], [1.0, 1.3, 0.8, 1.2])
    assert not helps(lucky, before)
    assert helps(losses(0.5, 0.4, 0.6), losses(1.0, 1.0, 1.1))
    assert not helps(losses(1.1, 1.0, 1.1), losses(1.0, 1.0, 1.1))


def test_a_small_weight_of_fine_tuned_models_helps_only_if_more_does_no_harm() -> None:
    before = accuracies(0.5, 0.6, 0.7, 0.6)
    ahead = accuracies(0.6, 0.7, 0.8, 0.8)
    same, behind = before, accuracies(0.4, 0.5, 0.7, 0.5)
    assert helpful_weights([ahead, same, behind], before) == [True, False, False]
    assert helpful_weights([ahead, behind, behind], before) == [False, False, False]
    assert helpful_weights([behind, ahead, behind], before) == [False, True, False]


def test_a_slowly_falling_loss_is_not_out_of_reach() -> None:
    ahead, behind = (0.1, 0.11, 0.12, 0.1), (0.5, 0.52, 0.55, 0.51)
    assert compare(losses(*ahead), losses(*behind)).t > 2
    assert not out_of_reach(losses(*ahead), losses(*behind), 2)
    assert out_of_reach(losses(*ahead), losses(*(100 * loss for loss in behind)), 2)
    assert out_of_reach(accuracies(*behind), accuracies(*ahead), 2)
    assert not out_of_reach(accuracies(*ahead), accuracies(*behind), 2)
