"""Made-up metrics of runs."""

from __future__ import annotations

from typing import Any

from srfca.experiments.metrics import SCORE_NAMES

NAMES = {"sr-fca": "SR-FCA", "oracle": "Oracle", "other": "Other & 5% a_b"}


def made_up_run(method: str, seed: int, accuracy: float | None, **changes: Any) -> dict[str, Any]:
    scores: dict[str, float | None] = dict.fromkeys(SCORE_NAMES)
    scores |= {f"tuned_{name}": None for name in SCORE_NAMES}
    budget = dict.fromkeys(("local_steps", "models_down", "models_up", "evaluations"), 1200)
    budget |= dict.fromkeys(("bytes_down", "bytes_up"), 50_000_000)
    return {
        "experiment": "made-up", "method": method, "name": NAMES[method], "k": None, "seed": seed,
        "clients": 10, "true_clusters": 2, "num_clusters": 2, "misclustering": 0.0, "ari": 1.0,
        "scored_on": "test", **scores, "accuracy": accuracy, "worst_accuracy": accuracy,
        "loss": 0.5, **budget, "distance_to_optimum": None, "seconds": 1.25, "labels": [0, 1],
    } | changes  # fmt: skip


RUNS = [
    made_up_run("sr-fca", 0, 0.75), made_up_run("oracle", 0, 0.9),
    made_up_run("other", 0, 0.5, ari=0.5), made_up_run("sr-fca", 1, 0.85),
    made_up_run("oracle", 1, 0.9), made_up_run("other", 1, 0.7, ari=0.5),
]  # fmt: skip
