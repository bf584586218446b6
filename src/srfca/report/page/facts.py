"""The numbers of a run that a reader should see first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
    return [*_cluster_facts(view), *_score_facts(view), *_cost_facts(view)]


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
    tuned = clients.tuned_loss is not None
    accuracy = clients.tuned_accuracy if tuned else clients.accuracy
    loss = clients.tuned_loss if tuned else clients.loss
    after = ", fine-tuned" if tuned else ""
    if accuracy is not None:
        worst = f"worst client {np.nanmin(accuracy):.1%}"
        return [Fact(f"{clients.split} accuracy{after}", f"{np.nanmean(accuracy):.1%}", worst)]
    if loss is not None:
        worst = f"worst client {np.nanmax(loss):.3g}"
        return [Fact(f"{clients.split} loss{after}", f"{np.nanmean(loss):.3g}", worst)]
    last = view.history[-1] if view.history else None
    if last is None or last.loss is None:
        return []
    if last.accuracy is not None:
        return [Fact("held-out accuracy", f"{last.accuracy:.1%}")]
    return [Fact("held-out loss", f"{last.loss:.3g}")]


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
