"""SR-FCA to the letter of the paper: a configuration of its own, to be compared with SR-FCA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from srfca.clustering.candidates import Metric
from srfca.errors import require
from srfca.methods._common.search_space import Percentages, Range, SearchSpace
from srfca.methods.registry import register
from srfca.methods.sr_fca.options import SRFCA
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class LiteralSRFCA(SRFCA):
    """Run SR-FCA exactly as in the paper: no automatic threshold, no check on held-out data.

    ONE_SHOT, then exactly R times REFINE, with one lambda for both. Distances use all pairs of
    clients and all of their samples. Correlation clustering is one pass of random pivots, and the
    trimmed mean drops floor(beta J) values at each end. ONE_SHOT, RECLUSTER and MERGE remove
    clusters of fewer than t clients; clients that are unclustered in the end join the nearest
    cluster. The algorithm is that of ``SRFCA``, which describes all parameters.

    Args:
        threshold: lambda, of ONE_SHOT and of MERGE: a number, or a quantile of the distances of
            ONE_SHOT. The default is a quantile, because a number suits one experiment at most; the
            authors' code takes one too where no number is set. Tune it: the paper does.
        refine_steps: R.
        trim: beta.

    Raises:
        InputError: If a value is not allowed, ``auto`` among them.

    >>> from srfca import LocalTraining, Simulation, data, models
    >>> fed = Simulation(data.rotated_digits(num_clients=20, rotations=2), models.mlp(64, 32, 10))
    >>> local = LocalTraining(steps=60, batch_size=10, lr=0.5)
    >>> result = LiteralSRFCA(local=local, threshold="40%").fit(fed, seed=0)
    >>> result.partition == fed.data.truth
    True
    """

    key: ClassVar[str] = "sr-fca-literal"
    name: ClassVar[str] = "SR-FCA (literal)"

    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "trim": Range(0.0, 0.4),
        "threshold": Percentages(5, 95),
    }

    threshold: float | str = "30%"
    refine_steps: int = constrained(1, at_least=0)
    stop_early: bool = False
    samples: int | None = constrained(None, at_least=1)
    metric: Metric = "distance"
    restarts: int = constrained(0, at_least=0)
    all_pairs: int = constrained(2**31, at_least=0)
    trim: float = constrained(0.1, at_least=0, less_than=0.5)
    trim_at_least: int = constrained(0, at_least=0)
    max_change: float | None = constrained(None, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        thresholds = {"threshold": self.threshold, "merge_threshold": self.merge_threshold}
        for option, value in thresholds.items():
            require(
                value != "auto",
                f"{option}='auto' is not in the paper: give a number, or use the method sr-fca",
            )
        require(
            self.metric == "distance",
            f"metric={self.metric!r} is not in the paper: leave it out, or use the method sr-fca",
        )
