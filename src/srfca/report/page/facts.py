"""The numbers of a run that a reader should see first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srfca.analysis.names import percent
from srfca.analysis.sentences import gains
from srfca.federation import Budget
from srfca.report.view import RunView


@dataclass(frozen=True)
class Fact:
    """A number with its meaning.

    Args:
        title: What it is.
        value: The number, as text.
        remark: What it is of, or compared with.
    """

    title: str
    value: str
    remark: str = ""


def facts(view: RunView) -> list[Fact]:
    """Return the numbers of a run that matter most."""
    return [
        *_cluster_facts(view),
        *_score_facts(view),
        *_gain_facts(view),
        *_sure_facts(view),
        *_cost_facts(view),
    ]


def _cluster_facts(view: RunView) -> list[Fact]:
    alone, unclustered = len(view.partition.alone), len(view.partition.unclustered)
    shown = [Fact("clients", f"{view.num_clients:,}")]
    if view.clustered:
        remarks = [f"{alone} alone"] * (alone > 0) + [f"{unclustered} in none"] * (unclustered > 0)
        several = view.partition.num_clusters - alone
        shown.insert(0, Fact("clusters", f"{several:,}", ", ".join(remarks)))
        if view.truth is not None:
            ari, right = (
                view.partition.ari(view.truth),
                1 - view.partition.misclustering(view.truth),
            )
            shown.append(Fact("placed right", f"{right:.1%}", f"adjusted Rand index {ari:.2f}"))
    return shown


def _score_facts(view: RunView) -> list[Fact]:
    clients = view.clients
    if clients.score is None or not np.isfinite(clients.score).any():
        return []
    if clients.accuracy is not None:
        worst = f"worst client {np.nanmin(clients.accuracy):.1%}"
        return [Fact(clients.score_name, f"{np.nanmean(clients.accuracy):.1%}", worst)]
    worst = f"worst client {np.nanmax(clients.score):.3g}"
    return [Fact(clients.score_name, f"{np.nanmean(clients.score):.3g}", worst)]


def _gain_facts(view: RunView) -> list[Fact]:
    """Return the mean gain over one model for all, or else over training alone."""
    if view.analysis is None:
        return []
    others = ("one model", "training alone")
    for gain, other in zip(gains(view.analysis), others, strict=True):
        if gain is not None:
            noise = "" if gain.is_clear else ", within noise"
            if gain.relative is None:
                return [Fact(f"gain over {other}", gain.text(), f"points of accuracy{noise}")]
            return [Fact(f"loss against {other}", gain.text(), f"lower is better{noise}")]
    return []


def _sure_facts(view: RunView) -> list[Fact]:
    """Return how many clients are placed surely."""
    confidence = None if view.analysis is None else view.analysis.confidence
    if confidence is None:
        return []
    finite = confidence.confidence[np.isfinite(confidence.confidence)]
    if not len(finite):
        return []
    doubtful = int(confidence.doubtful.sum())
    return [
        Fact("mean confidence", percent(float(finite.mean())), f"{doubtful:,} clients doubtful")
    ]


def _cost_facts(view: RunView) -> list[Fact]:
    spent = sum((stage.budget for stage in view.history), Budget())
    seconds = view.metrics.get("seconds")
    megabytes = (spent.bytes_down + spent.bytes_up) / 1e6 / view.num_clients
    shown = [
        Fact(
            "local steps per client", f"{spent.local_steps / view.num_clients:,.0f}",
            f"{megabytes:,.3g} MB sent and received",
        )
    ]  # fmt: skip
    if seconds is not None:
        shown.append(Fact("seconds", f"{seconds:,.1f}", str(view.metrics.get("device", ""))))
    return shown
