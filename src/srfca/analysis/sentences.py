"""The answer in words."""

from __future__ import annotations

import numpy as np

from srfca.analysis.analysis import Analysis
from srfca.analysis.gains import Gain, losing_clients, mean_gain
from srfca.analysis.names import count_of, short_list
from srfca.methods._common.assignment import DOUBTFUL

SURE = 0.95
"""Clients of at least this confidence are called sure."""
_NAMES = 5
"""Names that a sentence lists."""


def answer(analysis: Analysis, doubt: bool = True) -> str:
    """Return the answer in a few sentences: what was found, what it gains, how sure it is.

    Args:
        analysis: The answer.
        doubt: Whether to say why the decision is doubtful, if it is.
    """
    match analysis.verdict:
        case "clusters":
            parts = [
                _clusters(analysis),
                _gains(analysis),
                *_certainty(analysis),
                _losers(analysis),
                _doubt(analysis) if doubt else "",
            ]
        case "together":
            parts = [_together(analysis), _outsiders(analysis), _decided(analysis, doubt)]
        case "alone":
            parts = [_alone(analysis), _decided(analysis, doubt)]
        case "none":
            clients = count_of(len(analysis.client_ids), "client")
            parts = [f"{analysis.method} does not look for clusters among its {clients}."]
    return " ".join(part for part in parts if part)


def _clusters(analysis: Analysis) -> str:
    return f"{analysis.method} found {analysis.partition.describe()}."


def _gains(analysis: Analysis) -> str:
    """Say what clusters gain over one model for all, and over training alone."""
    over_global, over_alone = gains(analysis)
    compared = [
        f"{_amount(gain)} {name}"
        for gain, name in (
            (over_global, "with one model for all"),
            (over_alone, "with every client alone"),
        )
        if gain is not None
    ]
    if not compared:
        return ""
    assert analysis.reference is not None
    kind = "accuracy" if analysis.scores.accuracy is not None else "loss"
    data = {"validation": "held-out", "test": "test", "train": "training"}[analysis.reference.split]
    return f"Mean {kind} on {data} data is {', and '.join(compared)}."


def gains(analysis: Analysis) -> tuple[Gain | None, Gain | None]:
    """Return what the answer gains over one model for all, and over training alone."""
    reference = analysis.reference
    if reference is None:
        return None, None
    over_global, over_alone = (
        None if other is None else mean_gain(reference.answer, other)
        for other in (reference.together, reference.alone)
    )
    return over_global, over_alone


def _amount(gain: Gain) -> str:
    """Return a gain in words, to stand between "is" and what it is compared with."""
    if gain.relative is None:
        size, word = f"{abs(100 * gain.mean):.1f}", "higher" if gain.mean > 0 else "lower"
        unit = " points"
    else:
        size, word = f"{abs(100 * gain.relative):.1f}", "lower" if gain.mean > 0 else "higher"
        unit = "%"
    noise = "" if gain.is_clear else " (within noise)"
    return "the same as" if float(size) == 0 else f"{size}{unit} {word}{noise} than"


def _certainty(analysis: Analysis) -> list[str]:
    """Say how many clients are placed surely, and which are doubtful."""
    confidence = analysis.confidence
    if confidence is None:
        return ["Confidence is unavailable without held-out data."]
    values = confidence.confidence
    placed = np.isfinite(values)
    sure = int((values[placed] >= SURE).sum())
    parts = [
        f"{sure:,} of {count_of(int(placed.sum()), 'client')} in clusters "
        f"{'is' if sure == 1 else 'are'} placed with at least {SURE:.0%} confidence."
    ]
    doubtful = np.flatnonzero(confidence.doubtful)
    if len(doubtful):
        order = doubtful[np.argsort(values[doubtful], kind="stable")]
        names = short_list([analysis.client_ids[client] for client in order.tolist()], _NAMES)
        parts.append(f"Doubtful (below {DOUBTFUL:.0%}): {names}.")
    return parts


def _losers(analysis: Analysis) -> str:
    """Say which clients do worse than with one model for all."""
    reference = analysis.reference
    if reference is None or reference.together is None:
        return ""
    losing = losing_clients(reference.answer, reference.together)
    if not len(losing):
        return "No client does worse than with one model for all."
    names = short_list([analysis.client_ids[client] for client in losing.tolist()], _NAMES)
    verb = "does" if len(losing) == 1 else "do"
    return f"{count_of(len(losing), 'client')} {verb} worse than with one model for all: {names}."


def _together(analysis: Analysis) -> str:
    """Say that there are no groups, and what the other answers would bring."""
    considered = _considered(analysis)
    compared = []
    clusters = [score for name, score in considered.items() if "cluster" in name]
    one = considered.get("one model for all")
    if clusters and one is not None:
        compared.append(_clustering(max(clusters), one))
    alone = considered.get("every client alone")
    best = one if one is not None else next(iter(clusters), None)
    if alone is not None and best is not None:
        compared.append(f"training alone is {_verdict_on(alone, best)}")
    variant = analysis.decision.variant if analysis.decision is not None else ""
    model = f"one model, {variant} at each client," if variant else "one model"
    others = len(analysis.partition.alone) or len(analysis.partition.unclustered)
    text = f"No groups found: {model} serves {'most' if others else 'all'} clients"
    return f"{text}; {'; '.join(compared)}." if compared else f"{text}."


def _outsiders(analysis: Analysis) -> str:
    """Name the clients that are alone beside a single cluster."""
    alone = analysis.partition.alone.tolist()
    if not alone:
        return ""
    names = short_list([analysis.client_ids[client] for client in alone], _NAMES)
    verb = "keeps its own model" if len(alone) == 1 else "keep their own models"
    return f"{count_of(len(alone), 'client')} {verb}: {names}."


def _alone(analysis: Analysis) -> str:
    clients = count_of(len(analysis.client_ids), "client")
    text = f"No groups found: each of the {clients} does best with its own model"
    considered = _considered(analysis)
    alone = considered.pop("every client alone", None)
    if alone is None or not considered:
        return f"{text}."
    name = max(considered, key=lambda name: considered[name])
    return f"{text}; {name} would be {_verdict_on(considered[name], alone)}."


def _doubt(analysis: Analysis) -> str:
    """Say why the decision is doubtful, if it is."""
    decision = analysis.decision
    if decision is None or decision.warning is None:
        return ""
    return f"This is doubtful: {decision.warning}."


def _decided(analysis: Analysis, doubt: bool) -> str:
    """Say how sure the decision is, where there is no confidence by client."""
    decision = analysis.decision
    if decision is None or decision.standard_errors is None:
        return ""
    if decision.warning is not None:
        return _doubt(analysis) if doubt else ""
    errors = decision.standard_errors
    return f"The next best answer is {errors:.1f} standard errors behind on held-out data."


def _considered(analysis: Analysis) -> dict[str, float]:
    """Return the score of each answer that was considered: more is better.

    Of several variants it is the one that was chosen, and else the best.
    """
    decision = analysis.decision
    scores: dict[str, float] = {}
    chosen: dict[str, float] = {}
    for entry in decision.considered if decision is not None else ():
        accuracy, loss = entry["accuracy"], entry["loss"]
        score = accuracy if accuracy is not None else None if loss is None else -loss
        if score is None:
            continue
        scores[entry["name"]] = max(score, scores.get(entry["name"], -np.inf))
        assert decision is not None
        if (entry["name"], entry["variant"]) == (decision.chosen, decision.variant):
            chosen[entry["name"]] = score
    return scores | chosen


def _clustering(score: float, one: float) -> str:
    """Say what clustering would bring over one model; scores are as of ``_considered``.

    >>> _clustering(0.821, 0.82), _clustering(-3.0, -0.2)
    ('clustering gains 0.1 points over one model', 'the loss of clustering is 15.0 times as high')
    """
    if score >= one:
        if one < 0:
            return f"clustering has a loss that is {100 * (1 - score / one):.1f}% lower"
        return f"clustering gains {100 * (score - one):.1f} points over one model"
    if one < 0 and score < 2 * one:
        return f"the loss of clustering is {score / one:.1f} times as high"
    return f"clustering is {_verdict_on(score, one)}"


def _verdict_on(score: float, other: float) -> str:
    """Return how much worse or better a score is."""
    relative = other < 0 or score < 0
    change = (score - other) / max(abs(other), np.finfo(float).tiny) if relative else score - other
    if abs(change) < 0.005:
        return "as good"
    size = f"{abs(100 * change):.1f}{'%' if relative else ' points'}"
    return f"{size} {'better' if change > 0 else 'worse'}"
