"""The parameters of SR-FCA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import Tensor

from srfca.aggregation.functions import trim_count
from srfca.aggregation.outliers import NORM_LIMIT
from srfca.aggregation.rules import Aggregation, RobustAggregation, robust_aggregation
from srfca.clustering.candidates import Metric
from srfca.clustering.graph import RESTARTS, GraphClustering
from srfca.clustering.partition import Partition
from srfca.clustering.threshold import check_threshold
from srfca.distances import Distance, distance_named
from srfca.errors import require
from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import LocalTraining
from srfca.federation.requests import Subsample
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.rounds import Exchange, num_rounds, resolve_server_lr
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Percentages, Range, SearchSpace
from srfca.methods.registry import register
from srfca.methods.sr_fca.algorithm import sr_fca
from srfca.methods.sr_fca.auto import threshold_rule
from srfca.methods.sr_fca.clusters import Clusters, onto_ball
from srfca.methods.sr_fca.decision import Tolerance
from srfca.methods.sr_fca.screening import LOSS_DISTANCES
from srfca.methods.sr_fca.thresholds import ThresholdRule
from srfca.parameters import constrained

if TYPE_CHECKING:
    from srfca.methods.sr_fca_literal import LiteralSRFCA


@register
@dataclass(frozen=True, kw_only=True)
class SRFCA(Method):
    """Find the clusters of a federation, without their number, and a model for each.

    Args:
        threshold: lambda of ONE_SHOT: a number, a quantile of the distances ("30%"), or ``auto``,
            which finds it and makes all decisions on the clients' held-out data: moves, merges, and
            in the end whether the clusters, one model for all or training alone is best, and
            whether clients should fine-tune (docs/decisions.md).
        merge_threshold: lambda of MERGE: a number, or ``auto``, which joins clusters whose models
            do equally well on their clients' held-out data. None is the lambda of ONE_SHOT if that
            is for distances, and ``auto`` if it is for profiles.
        min_size: t, the smallest number of clients in a cluster.
        one_shot_steps: Steps that clients train alone in ONE_SHOT; None is those of ``local``.
            Fewer can be enough to tell which clients are alike, and leave more for the clusters.
        refine_steps: R, the largest number of REFINE steps.
        stop_early: Stop when REFINE leaves the clusters unchanged: another step would train the
            same models again. It has no effect with ``resample`` or ``continue_training``.
        merge_first: MERGE before RECLUSTER.
        continue_training: TrimmedMeanGD starts from the clusters' models, not from w0; in the
            first REFINE from the means of their clients' local models.
        distance: ``cross_loss``, ``one_sided_loss``, ``balanced_cross_loss``,
            ``presence_balanced_cross_loss``, ``l2``, any ``l<q>``, ``linf``, ``cosine``,
            ``matched``, ``wasserstein``, or a function of two ``ModelSet``.
        ask_class_counts: With ``threshold="auto"`` and ``cross_loss``, ask clients for their class
            counts where distances show no clear groups, for ``balanced_cross_loss``, which label
            skew does not fool. Otherwise groups under label skew are often not found.
        samples: Distances use losses on at most this many training samples of each client, drawn
            by the seed; None is all of them.
        metric: What the threshold applies to: ``distance``, ``profile`` (the distance between two
            clients' denoised profiles of distances), or ``auto``: the distance for a number,
            whichever shows groups better for an automatic threshold.
        graph: Graph clustering: ``correlation``, ``components`` or ``cliques``.
        restarts: Random orders of pivots that correlation clustering tries, each improved by
            single moves; 0 is one pass of pivots, without moves.
        all_pairs: Up to this many clients all pairs of distances are computed. With more clients,
            only those that correlation clustering by random pivots needs, and eight clients
            represent a cluster.
        aggregation: How TrimmedMeanGD aggregates the rows of a cluster: ``trimmed_mean`` as in the
            paper, ``median``, ``geometric_median``, ``clipped_mean``, ``centered_clipping``,
            ``krum``, ``multi_krum`` or ``bulyan``.
        trim: beta of the trimmed mean, in [0, 1/2): the fraction of a cluster's clients that is
            dropped on each side of each coordinate. 0 is a plain mean.
        trim_at_least: The least number of them, in clusters of three clients or more: without it a
            small cluster has no protection from a single bad client.
        max_change: Changes of a cluster's model that are longer than this many times the cluster's
            median are shortened to that. In ONE_SHOT so are local models that are further from w0
            than this many times the furthest of the others, where the ``trim`` fraction of the
            clients does not count. None is no bound, also on the losses of single clients in
            distances to clusters.
        exchange: What clients send in TrimmedMeanGD: ``models`` after some local steps, or full
            ``gradients``, along which the server steps with the schedule of ``local``.
        server_lr: eta, the server's learning rate for gradients; None is that of ``local``.
        diameter: TrimmedMeanGD projects its models onto the ball of this diameter around w0.
        participation: The fraction of each cluster's clients that take part in a round.
        resample: Train the local models again, on resampled data, before each REFINE.
        final_steps: Steps of a last federated training inside the clusters, with the same
            aggregation; a trimmed mean of ``trim=0`` is weighted by the clients' sizes, as FedAvg.
        final_mu: Weight of its proximal term: 0 is FedAvg, more is FedProx.
        trial_steps: With ``threshold="auto"``, the most local steps of a client in each trial of
            another answer: one model for all, or parts of a single cluster, which need as many as
            ``local``, and fine-tuning, which takes up to a third of them. None is no limit; 0 tries
            none.

    Raises:
        InputError: If a value is not allowed.

    >>> from srfca import LocalTraining, Simulation, data, models
    >>> fed = Simulation(data.rotated_digits(num_clients=20, rotations=2), models.mlp(64, 32, 10))
    >>> local = LocalTraining(steps=60, batch_size=10, lr=0.5)
    >>> result = SRFCA(local=local, refine_steps=1).fit(fed, seed=0)
    >>> result.partition == fed.data.truth
    True
    """

    key: ClassVar[str] = "sr-fca"
    name: ClassVar[str] = "SR-FCA"
    paper: ClassVar[str] = (
        "Harshvardhan, Ghosh, Mazumdar: An Improved Federated Clustering Algorithm with "
        "Model-based Clustering. TMLR 2024."
    )
    family: ClassVar[Family] = "SR-FCA"
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "trim": Range(0.0, 0.4),
        "threshold": Percentages(5, 95, "auto"),
    }

    threshold: float | str = "auto"
    merge_threshold: float | str | None = None
    min_size: int = constrained(2, at_least=1)
    one_shot_steps: int | None = constrained(None, at_least=1)
    refine_steps: int = constrained(2, at_least=0)
    stop_early: bool = True
    merge_first: bool = False
    continue_training: bool = False
    distance: str | Distance = "cross_loss"
    ask_class_counts: bool = True
    samples: int | None = constrained(128, at_least=1)
    metric: Metric = "auto"
    graph: GraphClustering = "correlation"
    restarts: int = constrained(RESTARTS, at_least=0)
    all_pairs: int = constrained(1000, at_least=0)
    aggregation: RobustAggregation = "trimmed_mean"
    trim: float = constrained(0.05, at_least=0, less_than=0.5)
    trim_at_least: int = constrained(1, at_least=0)
    max_change: float | None = constrained(NORM_LIMIT, at_least=1)
    exchange: Exchange = "models"
    server_lr: float | None = constrained(None, more_than=0)
    diameter: float | None = constrained(None, more_than=0)
    participation: float = constrained(1.0, more_than=0, at_most=1)
    resample: bool = False
    final_steps: int = constrained(0, at_least=0)
    final_mu: float = constrained(0.0, at_least=0)
    trial_steps: int | None = constrained(None, at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threshold(self.threshold, "threshold")
        if self.merge_threshold is not None:
            check_threshold(self.merge_threshold, "merge_threshold")
            require(
                not str(self.merge_threshold).endswith("%"),
                "merge_threshold must be a number or 'auto': clusters are too few for a quantile",
            )
        distance_named(self.distance)

    @classmethod
    def as_in_paper(
        cls,
        threshold: float | str,
        min_size: int = 2,
        trim: float = 0.1,
        refine_steps: int = 1,
        **parameters: Any,
    ) -> LiteralSRFCA:
        """Return the literal algorithm of the paper, the method ``sr-fca-literal``.

        Args:
            threshold: lambda, of ONE_SHOT and of MERGE: a number, or a quantile of the distances.
            min_size: t.
            trim: beta.
            refine_steps: R.
            parameters: Any other parameter of ``SRFCA``.

        Raises:
            InputError: If the threshold is ``auto``, or another value is not allowed.
        """
        from srfca.methods.sr_fca_literal import LiteralSRFCA

        return LiteralSRFCA(
            threshold=threshold, min_size=min_size, trim=trim, refine_steps=refine_steps,
            **parameters,
        )  # fmt: skip

    @property
    def rule(self) -> ThresholdRule:
        """The rule of ``threshold``."""
        return threshold_rule(self.threshold)

    @property
    def rows_rule(self) -> Aggregation:
        """The rule that makes one row of the rows of a cluster's clients."""
        return robust_aggregation(self.aggregation, self.trim, self.trim_at_least)

    @property
    def trainings(self) -> float:
        """ONE_SHOT, every REFINE with its resampling, the last training, and the trials."""
        together = max(self.refine_steps, 1) + self.final_steps / self.local.steps
        times_alone = 1 + (self.refine_steps if self.resample else 0)
        alone = times_alone * self.one_shot_training.steps / self.local.steps
        if self.threshold == "auto":
            alone += min(1 / 3, self.trial_budget / self.local.steps)
            if self.trial_budget >= self.local.steps:
                together += 1 + (1 / 3 if self.refine_steps else 0)
        return alone + together * self.participation

    @property
    def one_shot_training(self) -> LocalTraining:
        """How clients train alone in ONE_SHOT."""
        return replace(self.local, steps=self.one_shot_steps or self.local.steps)

    @property
    def gradient_lr(self) -> float | None:
        """The server's learning rate if clients send gradients, None if they send models."""
        return resolve_server_lr(self.exchange, self.server_lr, self.local)

    @property
    def stops_early(self) -> bool:
        """Whether another REFINE of unchanged clusters would only repeat the last one."""
        return self.stop_early and not (self.resample or self.continue_training)

    def start(self, clusters: Clusters) -> Tensor | None:
        """Return the models ``[k, P]`` that TrimmedMeanGD starts from, None for w0.

        Args:
            clusters: The clusters and their models.
        """
        return clusters.models if self.continue_training else None

    @property
    def segments(self) -> Sequence[range]:
        """The rounds of TrimmedMeanGD, in the parts that the threshold's rule wants."""
        return self.rule.segments(num_rounds(self.local, self.gradient_lr))

    @property
    def trial_budget(self) -> int:
        """The most local steps of a client in a trial."""
        return self.local.steps if self.trial_steps is None else self.trial_steps

    def tolerance(self, *partitions: Partition) -> Tolerance:
        """Return how many clients may lie in a comparison of answers with these partitions.

        Args:
            partitions: Clients that are together in all of them should gain alike.
        """
        together = np.stack([partition.labels for partition in partitions])
        labels = np.unique(together, axis=1, return_inverse=True)[1].reshape(-1)
        return Tolerance(labels, trim_count(len(labels), self.trim, self.trim_at_least))

    def projection(self, run: Run) -> Callable[[Tensor], Tensor]:
        """Return the projection of models onto the ball around w0, if there is one.

        It is of the trained coordinates; buffers stay as they are.

        Args:
            run: The run.
        """
        diameter, w0, trained = self.diameter, run.initial_model(), Coordinates.trained(run.layers)
        if diameter is None:
            return lambda models: models
        center = trained.take(w0.unsqueeze(0))[0]
        return lambda models: trained.put(models, onto_ball(trained.take(models), center, diameter))

    def subsample(self, seed: int) -> Subsample | None:
        """Return the samples that losses are computed on, None for all.

        Args:
            seed: Decides which samples.
        """
        return None if self.samples is None else Subsample(self.samples, seed)

    def solve(self, run: Run) -> Answer:
        """Find the clusters and their models."""
        self.check(run)
        clusters = sr_fca(run, self)
        return Answer(clusters.partition.labels, clusters.models, clusters.individual_models)

    def check(self, run: Run) -> None:
        """Raise an error for a federation that these parameters cannot cluster.

        Args:
            run: The run.

        Raises:
            InputError: If it has fewer than two clients, more than ``all_pairs`` allows, fewer than
                ``min_size``, or no held-out data where they are needed.
        """
        m = run.num_clients
        require(m >= 2, f"clustering needs at least two clients, but there is {m}")
        require(
            m <= self.all_pairs or self.graph == "correlation",
            f"graph={self.graph!r} needs all pairs of the {m} clients: "
            f"raise all_pairs={self.all_pairs}",
        )
        require(self.min_size <= m, f"min_size={self.min_size} is more than the {m} clients")
        by_profile = self.metric == "profile" and self.merge_threshold is None
        compares_losses = {
            "threshold='auto'": self.threshold == "auto",
            "merge_threshold='auto'": self.merge_threshold == "auto",
            f"distance={self.distance!r}": self.distance in LOSS_DISTANCES,
        }
        for option, is_set in compares_losses.items():
            require(
                not is_set or not run.federation.negative_losses,
                f"{option} needs losses that are not negative, but this federation says that they "
                "may be (negative_losses=True): add a constant to the loss, or give thresholds for "
                "a distance between models, such as distance='l2'",
            )
        held_out = {
            "threshold='auto'": self.threshold == "auto",
            "merge_threshold='auto'": self.merge_threshold == "auto",
            "metric='profile' without a merge_threshold": by_profile,
        }
        for option, is_set in held_out.items():
            require(
                not is_set or "validation" in run.federation.splits,
                f"{option} needs held-out data, but this federation has no validation split",
            )
