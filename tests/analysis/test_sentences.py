from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from srfca.analysis import Analysis, Confidence, DecisionNotes, Reference
from tests.analysis import made_up


def decision(
    considered: dict[str, float], warning: str | None = None, **more: Any
) -> DecisionNotes:
    entries = tuple(
        {"name": name, "variant": "", "accuracy": value if value >= 0 else None, "loss": -value}
        for name, value in considered.items()
    )
    values: dict[str, Any] = {"chosen": "", "variant": "", "standard_errors": 3.0} | more
    return DecisionNotes(sentence="", warning=warning, considered=entries, **values)


def confidence(values: list[float]) -> Confidence:
    m = len(values)
    nothing = np.full(m, np.nan)
    return Confidence(
        np.array([0, 1]), np.array(values), nothing, nothing, np.full(m, -1), nothing,
        np.full((m, 2), 0.5), np.ones(2),
    )  # fmt: skip


def test_clusters() -> None:
    answer = made_up.scores([0.9, 0.9, 0.7, 0.9])
    together, alone = made_up.scores([0.8, 0.8, 0.8, 0.8]), made_up.scores([0.5, 0.5, 0.5, 0.5])
    part = made_up.analysis(
        [0, 0, 1, 1],
        confidence=confidence([0.99, 0.97, 0.6, 0.4]),
        reference=Reference("test", answer, together, alone),
    )
    assert part.sentence() == (
        "SR-FCA found 2 clusters of 2, 2 clients. Mean accuracy on test data is 5.0 points higher "
        "(within noise) than with one model for all, and 35.0 points higher than with every client "
        "alone. 2 of 4 clients in clusters are placed with at least 95% confidence. "
        "Doubtful (below 80%): d, c. 1 client does worse than with one model for all: c."
    )


def test_clusters_by_loss() -> None:
    answer, together = made_up.scores(None, [1.0, 1.0]), made_up.scores(None, [2.0, 2.0])
    part = made_up.analysis(
        [0, 0, 1, 1], scores=made_up.scores(None, [1.0] * 4), confidence=confidence([0.99] * 4),
        reference=Reference("validation", answer, together, None),
    )  # fmt: skip
    assert (
        "Mean loss on held-out data is 50.0% lower than with one model for all." in part.sentence()
    )
    assert part.sentence().endswith("No client does worse than with one model for all.")


def test_clusters_without_held_out_data() -> None:
    text = made_up.analysis([0, 0, 1, 1]).sentence()
    assert text == (
        "SR-FCA found 2 clusters of 2, 2 clients. Confidence is unavailable without held-out data."
    )


def test_together() -> None:
    considered = {"2 clusters": 0.821, "one model for all": 0.82, "every client alone": 0.817}
    part = made_up.analysis([0] * 102, decision=decision(considered))
    assert part.verdict == "together"
    assert part.sentence() == (
        "No groups found: one model serves all clients; clustering gains 0.1 points over one "
        "model; training alone is as good. The next best answer is 3.0 standard errors behind on "
        "held-out data."
    )


def test_other_answers_are_compared_with_the_one_that_was_chosen() -> None:
    notes = decision(
        {"one model for all": 0.958, "every client alone": 0.775}, chosen="one model for all"
    )
    tuned = {"name": "one model for all", "variant": "fine-tuned", "accuracy": 0.967, "loss": 0.1}
    notes = replace(notes, considered=(*notes.considered, tuned))
    text = made_up.analysis([0] * 8, decision=notes).sentence()
    assert "training alone is 18.3 points worse" in text
    chosen = replace(notes, variant="fine-tuned")
    text = made_up.analysis([0] * 8, decision=chosen).sentence()
    assert "training alone is 19.2 points worse" in text


def test_together_by_loss_with_fine_tuning_and_doubt() -> None:
    considered = {"one model for all": -1.0, "every client alone": -1.2}
    notes = decision(
        considered, "every client alone may do as well", variant="fine-tuned by 5 steps"
    )
    text = made_up.analysis([0, 0, 0], decision=notes).sentence()
    assert text == (
        "No groups found: one model, fine-tuned by 5 steps at each client, serves all clients; "
        "training alone is 20.0% worse. This is doubtful: every client alone may do as well."
    )
    gained = decision({"3 clusters": -0.9, "one model for all": -1.0})
    text = made_up.analysis([0, 0, 0], decision=gained).sentence()
    assert "clustering has a loss that is 10.0% lower" in text


def test_one_cluster_and_clients_alone() -> None:
    part = made_up.analysis([0, 0, 0, 1, 2])
    assert part.sentence() == (
        "No groups found: one model serves most clients. 2 clients keep their own models: d, e."
    )
    assert "1 client keeps its own model: d." in made_up.analysis([0, 0, 0, 1]).sentence()


def test_everyone_alone_is_never_a_list() -> None:
    considered = {"one model for all": 0.5, "every client alone": 0.9}
    part = made_up.analysis(range(102), decision=decision(considered))
    assert part.verdict == "alone"
    assert part.sentence() == (
        "No groups found: each of the 102 clients does best with its own model; one model for all "
        "would be 40.0 points worse. The next best answer is 3.0 standard errors behind on "
        "held-out data."
    )
    assert made_up.analysis(range(102)).sentence() == (
        "No groups found: each of the 102 clients does best with its own model."
    )


def test_many_clusters_and_names_are_cut() -> None:
    labels = [number % 50 for number in range(10_000)]
    part = made_up.analysis(labels)
    assert part.sentence().startswith("SR-FCA found 50 clusters of 200 clients.")
    doubtful = confidence([0.5] * 10_000)
    text = made_up.analysis(labels, confidence=doubtful).sentence()
    assert "and 9,995 more." in text
    assert len(text) < 400


def test_a_method_without_clusters() -> None:
    part = made_up.analysis([0, 0], clustered=False, method="Global")
    assert part.sentence() == "Global does not look for clusters among its 2 clients."
    assert isinstance(part, Analysis)


def test_a_loss_that_clustering_multiplies_is_told_as_a_factor() -> None:
    considered = {"2 clusters": -0.3, "one model for all": -0.02}
    text = made_up.analysis([0] * 4, decision=decision(considered)).sentence()
    assert "; the loss of clustering is 15.0 times as high." in text
    worse = decision({"2 clusters": 0.7, "one model for all": 0.8})
    assert (
        "; clustering is 10.0 points worse." in made_up.analysis([0] * 4, decision=worse).sentence()
    )


def test_what_gains_nothing_is_the_same() -> None:
    answer = made_up.scores([0.9, 0.8, 0.7, 0.8])
    reference = Reference("test", answer, answer, made_up.scores([0.7, 0.8, 0.6, 0.7]))
    text = made_up.analysis([0, 0, 1, 1], scores=answer, reference=reference).sentence()
    assert "Mean accuracy on test data is the same as with one model for all, and 10.0" in text
