"""What a run found, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from srfca.analysis.sentences import answer
from srfca.clustering.partition import Partition
from srfca.report.summary import group_runs, means_of_metrics
from srfca.report.view import RunView


def clusters_sentence(metrics: Mapping[str, Any]) -> str:
    """Return a sentence about the clusters that a run found, from its metrics."""
    text = f"{metrics['name']} found {Partition(metrics['labels']).describe()}"
    given = metrics["k"] is not None
    text += f", given K={metrics['k']}" if given else ", without being given their number"
    return f"{text}. {truth_sentence(metrics)}".rstrip()


def truth_sentence(metrics: Mapping[str, Any]) -> str:
    """Return a sentence about the true clusters, empty if they are unknown."""
    if metrics["misclustering"] is None:
        return ""
    if metrics["misclustering"] == 0:
        return "The clusters are exactly the true ones."
    count, misplaced = metrics["true_clusters"], metrics["misclustering"]
    groups = f"There {'is one true cluster' if count == 1 else f'are {count} true clusters'}"
    return f"{groups}, and {misplaced:.1%} of the clients are misplaced."


def reference_sentence(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence about runs that answers are compared with, from their metrics.

    Args:
        runs: Runs of one or two methods, for one or more seeds.
    """
    means = [means_of_metrics(group.runs) for group in group_runs(runs)]
    parts = [f"{run['name']} ({_score(run)})" for run in means]
    steps = sum(run["local_steps"] / run["clients"] for run in means)
    megabytes = sum((run["bytes_down"] + run["bytes_up"]) / run["clients"] / 1e6 for run in means)
    return (
        f"Reference, apart from the methods above and their cost: {' and '.join(parts)}, "
        f"{steps:,.0f} local steps and {megabytes:.2f} MB a client. --no-reference leaves it out."
    )


def gains_sentence(
    runs: Sequence[Mapping[str, Any]], references: Sequence[Mapping[str, Any]]
) -> str:
    """Return a sentence about what a method gains over other ones, seed by seed.

    Args:
        runs: Metrics of one method.
        references: Metrics of other methods; those of the same seeds count.

    Returns:
        Empty if fewer than two seeds have a reference, or there are no accuracies.

    Examples:
        >>> ours, other = [
        ...     [{"name": name, "method": name, "k": None, "seed": seed, "accuracy": accuracy,
        ...       "scored_on": "test"} for seed, accuracy in enumerate(accuracies)]
        ...     for name, accuracies in [("SR-FCA", [0.95, 0.93]), ("Global", [0.85, 0.87])]
        ... ]
        >>> gains_sentence(ours, other)
        'Over 2 seeds, test accuracy of SR-FCA is 8.0 ± 2.8 points higher than that of Global.'
    """
    parts = []
    for group in group_runs(references):
        of_seed = {run["seed"]: run["accuracy"] for run in group.runs}
        gains = [
            100 * (run["accuracy"] - of_seed[run["seed"]])
            for run in runs
            if run["accuracy"] is not None and of_seed.get(run["seed"]) is not None
        ]
        if len(gains) > 1:
            than = f"{'higher' if fmean(gains) >= 0 else 'lower'} than that of {group.name}"
            parts.append(f"{abs(fmean(gains)):.1f} ± {stdev(gains):.1f} points {than}")
    if not parts:
        return ""
    name, split = runs[0]["name"], runs[0]["scored_on"]
    return f"Over {len(runs)} seeds, {split} accuracy of {name} is {', and '.join(parts)}."


def _score(run: Mapping[str, Any]) -> str:
    if run["accuracy"] is None:
        return f"{run['scored_on']} loss {run['loss']:.3g}"
    return f"{run['scored_on']} accuracy {run['accuracy']:.1%}"


def findings(view: RunView) -> list[str]:
    """Return sentences about what a run found, and why."""
    sentences = [outcome(view), *_truth(view)]
    reason = view.history[0].notes.get("reason") if view.history else None
    if reason:
        sentences.append(f"Threshold of ONE_SHOT: {reason}.")
    if view.decision is not None:
        sentences.append(view.decision)
    return sentences


def outcome(view: RunView) -> str:
    """Return a sentence about the clusters of a run."""
    if not view.clustered:
        return f"{view.method} finds no clusters: it gives {_models(view)}."
    if view.analysis is not None:
        return answer(view.analysis, doubt=False)  # which is among the warnings
    k = view.parameters.get("k")
    return clusters_sentence(
        {"name": view.method, "labels": view.labels, "k": k, "misclustering": None}
    )


def _truth(view: RunView) -> list[str]:
    """Return a sentence about the true clusters, if they are known."""
    if not view.clustered or view.truth is None:
        return []
    truth, wrong = view.truth.num_clusters, view.partition.misclustering(view.truth)
    return [truth_sentence({"true_clusters": truth, "misclustering": wrong})]


def _models(view: RunView) -> str:
    if view.individual_models is not None or view.partition.num_clusters == view.num_clients > 1:
        return "each client a model of its own"
    return "all clients one model"


def warnings(view: RunView) -> list[str]:
    """Return what a reader should be careful about."""
    lines = []
    notes = [stage.notes for stage in view.history]
    decided = [note for note in notes if "decision" in note]
    doubt = next((note.get("warning") for note in reversed(decided or notes[:1])), None)
    if doubt and (view.partition.num_clusters > 1 or view.decision is not None):
        lines.append(f"This result is uncertain: {doubt}.")
    if count := len(view.partition.unclustered):
        verbs = ("is", "has") if count == 1 else ("are", "have")
        lines.append(f"{_clients(count)} {verbs[0]} in no cluster, and {verbs[1]} no model.")
    missing = [reply for stage in view.history for reply in stage.notes.get("missing", ())]
    if missing:
        counts = Counter(reply["client"] for reply in missing)
        often = ", ".join(f"{client} ({times})" for client, times in counts.most_common(5))
        more = f" and {len(counts) - 5} more" if len(counts) > 5 else ""
        replies = "1 reply is" if len(missing) == 1 else f"{len(missing):,} replies are"
        lines.append(f"{replies} missing, of {_clients(len(counts))}: {often}{more}.")
    return lines


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count:,} clients"
