"""SR-FCA: Successive Refine Federated Clustering Algorithm.

Harshvardhan, Avishek Ghosh, Arya Mazumdar: An Improved Federated Clustering Algorithm with
Model-based Clustering. Transactions on Machine Learning Research, 02/2024.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from srfca.aggregation import trim_count, trimmed_mean
from srfca.clustering.graph import GRAPH_CLUSTERINGS, cluster_graph, threshold_graph
from srfca.clustering.partition import Partition
from srfca.clustering.threshold import METRICS, Choice, check_threshold
from srfca.distances import Distance, Side, distance_named
from srfca.errors import require, unknown
from srfca.federation.base import Federation, Sample, Work
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.held_out import held_out_losses, interchangeable
from srfca.methods.one_shot import choice_notes, one_shot, parts
from srfca.methods.rounds import federated_training, heard, least, local_training, weighted_mean
from srfca.methods.run import Run
from srfca.random import Key

STANDING = 8
"""Clients that stand for a cluster in a federation of many: each distance is a mean over them."""


@dataclass(frozen=True)
class Clusters:
    """A partition and the model of each of its clusters, always in step: ``models`` is [k, P]."""

    partition: Partition
    models: Tensor

    @classmethod
    def of(cls, labels: np.ndarray, models: Tensor) -> Clusters:
        """From labels that number the models, or are -1; a model without clients disappears."""
        partition = Partition(labels)
        return cls(partition, models[[int(labels[members[0]]) for members in partition]])

    @property
    def client_models(self) -> Tensor:
        """``[c, P]`` the model of each client that is in a cluster, in order."""
        labels = self.partition.labels
        return self.models[torch.tensor(labels[labels >= 0], device=self.models.device)]


@dataclass(frozen=True, kw_only=True)
class SRFCA(Method):
    """SR-FCA: find the clusters of a federation, and a model for each.

    Args:
        threshold: lambda of ONE_SHOT: a number, a quantile of the distances ("30%"), or ``auto``,
            which finds it and checks what RECLUSTER and MERGE do on the clients' held-out data.
            Where there is no gap but clients vary, it cuts them into parts for MERGE to judge.
        merge_threshold: lambda of MERGE: a number, or ``auto``, which joins clusters whose models
            do equally well on their clients' held-out data. None is the lambda of ONE_SHOT where
            that is for distances, and ``auto`` where it is for profiles.
        min_size: t, the least number of clients of a cluster.
        one_shot_steps: Steps that clients take alone in ONE_SHOT; None is those of ``work``. Fewer
            can be enough to tell who is alike, and leave more for the clusters.
        refine_steps: R, how often REFINE is done at the most. It ends when it leaves the clusters
            as they were: more of it would train the same models again.
        distance: ``cross_loss``, ``one_sided_loss``, ``l2``, any ``l<q>``, ``linf``, ``cosine``, or
            a function of two sides.
        samples: The distances take losses on at most so many of each client's training samples,
            drawn by the seed; None is all of them.
        metric: What the threshold is for: ``distance``, ``profile`` (the distance between two
            clients' denoised profiles of distances), or ``auto``: the first for a number, whichever
            shows groups best for ``auto``.
        graph: ``correlation``, ``components`` or ``cliques``.
        all_pairs: Up to so many clients all their distances are asked for. Beyond, only those that
            correlation clustering by random pivots looks at, and eight clients stand for a cluster.
        trim: beta of the trimmed mean, in [0, 1/2).
        aggregate: What clients send in TrimmedMeanGD: ``models`` after some local steps, or whole
            ``gradients``, of which the server takes plain steps by the schedule of ``work``.
        server_lr: eta of the server's step when gradients are sent; None is the rate of ``work``.
        diameter: TrimmedMeanGD keeps its models in the ball of this diameter around w0, if given.
        participation: The fraction of each cluster's clients that take part in a round.
        resample: Train the clients' own models anew, on resampled data, before each REFINE.
        final_steps: Steps of a last federated training inside the clusters, with a plain mean.
        final_prox: Its proximal term: 0 is FedAvg, more is FedProx.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.

    >>> from srfca import Simulation, Work, data, models
    >>> fed = Simulation(data.rotated_digits(clients=20, rotations=2), models.mlp(64, 32, 10))
    >>> work = Work(steps=60, batch_size=10, lr=0.5)
    >>> result = SRFCA(work=work, refine_steps=1).fit(fed, seed=0)
    >>> result.partition == fed.data.truth
    True
    """

    name: ClassVar[str] = "SR-FCA"

    threshold: float | str = "auto"
    merge_threshold: float | str | None = None
    min_size: int = 2
    one_shot_steps: int | None = None
    refine_steps: int = 2
    distance: str | Distance = "cross_loss"
    samples: int | None = 128
    metric: str = "auto"
    graph: str = "correlation"
    all_pairs: int = 1000
    trim: float = 0.1
    aggregate: str = "models"
    server_lr: float | None = None
    diameter: float | None = None
    participation: float = 1.0
    resample: bool = False
    final_steps: int = 0
    final_prox: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threshold(self.threshold, "threshold")
        if self.merge_threshold is not None:
            check_threshold(self.merge_threshold, "merge_threshold")
            require(
                not str(self.merge_threshold).endswith("%"),
                "merge_threshold must be a number or 'auto': clusters are too few for a quantile",
            )
        require(self.min_size >= 1, f"min_size must be at least 1, not {self.min_size}")
        require(
            self.one_shot_steps is None or self.one_shot_steps >= 1,
            f"one_shot_steps must be at least 1, or None for those of work, "
            f"not {self.one_shot_steps}",
        )
        require(
            self.refine_steps >= 0, f"refine_steps must not be negative, but is {self.refine_steps}"
        )
        distance_named(self.distance)
        require(
            self.samples is None or self.samples >= 1,
            f"samples must be at least 1, or None for all of them, not {self.samples}",
        )
        if self.metric not in METRICS:
            raise unknown("metric", self.metric, METRICS)
        if self.graph not in GRAPH_CLUSTERINGS:
            raise unknown("graph clustering", self.graph, GRAPH_CLUSTERINGS)
        require(self.all_pairs >= 0, f"all_pairs must not be negative, but is {self.all_pairs}")
        trim_count(1, self.trim)
        if self.aggregate not in ("models", "gradients"):
            raise unknown("aggregate", self.aggregate, ["models", "gradients"])
        for name in ("server_lr", "diameter"):
            value = getattr(self, name)
            require(value is None or value > 0, f"{name} must be positive, not {value}")
        require_share(self.participation)
        for name in ("final_steps", "final_prox"):
            value = getattr(self, name)
            require(value >= 0, f"{name} must not be negative, but is {value}")

    @property
    def trainings(self) -> float:
        """ONE_SHOT, every REFINE, and the last training."""
        together = max(self.refine_steps, 1) + self.final_steps / self.work.steps
        alone = self.alone.steps / self.work.steps
        return alone + together * self.participation

    @property
    def alone(self) -> Work:
        """How clients train in ONE_SHOT."""
        return replace(self.work, steps=self.one_shot_steps or self.work.steps)

    def sample(self, seed: int) -> Sample | None:
        """What losses are measured on."""
        return None if self.samples is None else Sample(self.samples, seed)

    def solve(self, run: Run) -> Answer:
        """Find the clusters and their models."""
        clusters = sr_fca(self, run)
        return Answer(clusters.partition.labels, clusters.models)


def sr_fca(options: SRFCA, run: Run) -> Clusters:
    """ONE_SHOT, then REFINE R times, then a last training inside the clusters if asked for."""
    federation, seed = run.federation, run.seed
    m, alone = len(federation.clients), options.alone
    check_federation(options, federation)
    w0 = federation.initial(seed)
    sample = options.sample(seed)

    with run.stage("ONE_SHOT", m * alone.steps) as tick:
        w = local_training(federation, w0, alone, Key(seed, "one_shot"), tick)
        own = Side.clients(federation, w, sample)
        partition, choice, distances = one_shot(options, own, w0, seed)
        if options.refine_steps > 1:
            partition, choice = parts(options, own, partition, choice, distances, seed)
    run.record("ONE_SHOT", partition, w, distances, choice_notes(choice))

    nobody_is_alike = choice.threshold is None and partition.num_clusters > 1
    if nobody_is_alike:
        clusters = everybody_alone(options, w0, w, partition, run)
    else:
        clusters = Clusters(partition, w0.expand(partition.num_clusters, -1))
        for r in range(1, options.refine_steps + 1):
            if options.resample:
                with run.stage(f"RESAMPLE {r}", m * alone.steps) as tick:
                    again = replace(alone, resample=True)
                    w = local_training(federation, w0, again, Key(seed, f"resample {r}"), tick)
                    own = Side.clients(federation, w, sample)
            before, clusters = clusters, refine(options, own, w0, clusters, choice, r, run)
            if clusters.partition == before.partition and not options.resample:
                break
        if options.refine_steps == 0:
            clusters = trimmed_mean_gd(options, w0, clusters.partition, 0, run)
        clusters = place(options, own, clusters, run)

    return final_training(options, clusters, run) if options.final_steps else clusters


def everybody_alone(
    options: SRFCA, w0: Tensor, w: Tensor, partition: Partition, run: Run
) -> Clusters:
    """Each client is a cluster, with its own model, trained through all of the steps."""
    if options.alone != options.work:
        clients = range(len(partition))
        with run.stage("ALONE", len(clients) * options.work.steps) as tick:
            w = local_training(run.federation, w0, options.work, Key(run.seed, "alone"), tick)
        partition = Partition(np.where(heard(run.federation, w, clients), clients, -1))
        run.record("ALONE", partition, w)
    known = partition.labels >= 0
    return Clusters(partition, w if known.all() else w[torch.tensor(known, device=w.device)])


def check_federation(options: SRFCA, federation: Federation) -> None:
    """Refuse a federation that these options cannot cluster."""
    m = len(federation.clients)
    require(m >= 2, f"clustering needs at least two clients, but there is {m}")
    require(
        m <= options.all_pairs or options.graph == "correlation",
        f"graph={options.graph!r} needs all pairs of the {m} clients: "
        f"raise all_pairs={options.all_pairs}",
    )
    require(options.min_size <= m, f"min_size={options.min_size} is more than the {m} clients")
    by_profile = options.metric == "profile" and options.merge_threshold is None
    asks = {
        "threshold='auto'": options.threshold == "auto",
        "merge_threshold='auto'": options.merge_threshold == "auto",
        "metric='profile' without a merge_threshold": by_profile,
    }
    for what, asked in asks.items():
        require(
            not asked or "validation" in federation.splits,
            f"{what} needs held-out data, but this federation has no validation split",
        )


def refine(
    options: SRFCA,
    own: Side,
    w0: Tensor,
    clusters: Clusters,
    choice: Choice,
    r: int,
    run: Run,
) -> Clusters:
    """REFINE: TrimmedMeanGD, RECLUSTER, MERGE."""
    clusters = trimmed_mean_gd(options, w0, clusters.partition, r, run)
    clusters = recluster(options, own, clusters)
    run.record(f"RECLUSTER {r}", clusters.partition, clusters.client_models)
    clusters, joined = merge(options, own.federation, clusters, choice, run.seed)
    run.record(f"MERGE {r}", clusters.partition, clusters.client_models, notes={"joined": joined})
    return clusters


def trimmed_mean_gd(options: SRFCA, w0: Tensor, partition: Partition, r: int, run: Run) -> Clusters:
    """TrimmedMeanGD(beta): every cluster trains from w0, its clients' trimmed mean at each step."""

    def aggregate(rows: Tensor, sizes: Tensor) -> Tensor:
        return trimmed_mean(rows, options.trim)

    def project(models: Tensor) -> Tensor:
        return models if options.diameter is None else onto_ball(models, w0, options.diameter)

    gradients = options.aggregate == "gradients"
    models = federated_training(
        run, f"TRIMMED_MEAN_GD {r}", w0.expand(partition.num_clusters, -1), partition,
        options.work, aggregate, purpose=f"refine {r}", participation=options.participation,
        server_lr=(options.server_lr or options.work.lr) if gradients else None, project=project,
    )  # fmt: skip
    clusters = Clusters(partition, models)
    run.record(f"TRIMMED_MEAN_GD {r}", partition, clusters.client_models)
    return clusters


def recluster(options: SRFCA, own: Side, clusters: Clusters) -> Clusters:
    """RECLUSTER: every client goes to argmin_c dist(w_i, omega_c), the lowest c on a tie.

    With ``threshold="auto"`` a client stays where it is if it would do worse, on its held-out data,
    with the nearest cluster's model: distances of poor local models mislead (docs/sr_fca.md). A
    client that does not answer stays where it is as well.
    """
    theirs = standing(options, own.federation, clusters, own.sample)
    labels = unless_unknown(distance_named(options.distance)(own, theirs), clusters)
    if options.threshold == "auto":
        labels = unless_worse(held_out_losses(own.federation, clusters.models), clusters, labels)
    return Clusters.of(labels, clusters.models)


def standing(
    options: SRFCA, federation: Federation, clusters: Clusters, sample: Sample | None
) -> Side:
    """The clusters with the clients that stand for them: all, or ``STANDING`` of each if many."""
    many = len(clusters.partition) > options.all_pairs
    most = STANDING if many else None
    return Side.clusters(federation, clusters.models, clusters.partition, most, sample)


def unless_unknown(distances: np.ndarray, clusters: Clusters) -> np.ndarray:
    """The nearest cluster ``[m]`` by distances ``[m, k]``, or the present one if none is known."""
    nearest = least(torch.as_tensor(np.where(np.isinf(distances), np.nan, distances).T))
    return np.where(nearest >= 0, nearest, clusters.partition.labels)


def unless_worse(losses: np.ndarray, clusters: Clusters, labels: np.ndarray) -> np.ndarray:
    """The labels ``[m]``, or the present one where that cluster's model has a lower loss [k, m]."""
    every, present = np.arange(len(labels)), clusters.partition.labels
    worse = (present >= 0) & (losses[labels, every] > losses[present, every])
    return np.where(worse, present, labels)


def merge(
    options: SRFCA, federation: Federation, clusters: Clusters, choice: Choice, seed: int
) -> tuple[Clusters, list[list[int]]]:
    """MERGE(lambda, t): join clusters whose models are near, average their models, keep t clients.

    Clusters left with fewer than t clients are dissolved, unless all are. Also returns which
    clusters were joined.
    """
    before = clusters.partition
    threshold = options.merge_threshold
    if threshold is None and options.threshold != "auto" and choice.metric == "distance":
        threshold = choice.threshold
    if threshold is None or threshold == "auto":
        losses = held_out_losses(federation, clusters.models)
        graph = threshold_graph(~interchangeable(losses, before), 0)
    else:
        side = standing(options, federation, clusters, options.sample(seed))
        graph = threshold_graph(distance_named(options.distance)(side, side), float(threshold))
    joined = cluster_graph(graph, options.graph, seed)
    labels = np.where(before.labels >= 0, joined.labels[before.labels], -1)
    models = torch.stack([clusters.models[together.tolist()].mean(0) for together in joined])
    large = np.bincount(labels[labels >= 0]) >= options.min_size
    if large.any():
        labels = np.where(large[labels], labels, -1)
    groups = [together.tolist() for together in joined if len(together) > 1]
    return Clusters.of(labels, models), groups


def place(options: SRFCA, own: Side, clusters: Clusters, run: Run) -> Clusters:
    """Send the clients that are in no cluster to the nearest one.

    One that has no model of its own, because it did not answer then, goes where its loss is least.
    """
    labels = clusters.partition.labels
    if (labels >= 0).all():
        return clusters
    theirs = standing(options, own.federation, clusters, own.sample)
    nearest = unless_unknown(distance_named(options.distance)(own, theirs), clusters)
    labels = np.where(labels < 0, nearest, labels)
    lost = np.flatnonzero(labels < 0)
    if len(lost):
        labels[lost] = least(own.federation.losses(clusters.models, lost.tolist()))
    clusters = Clusters.of(labels, clusters.models)
    run.record("PLACE", clusters.partition, clusters.client_models)
    return clusters


def final_training(options: SRFCA, clusters: Clusters, run: Run) -> Clusters:
    """FedAvg or FedProx inside each cluster, from its model."""
    work = replace(options.work, steps=options.final_steps, prox=options.final_prox)
    models = federated_training(
        run, "FINAL", clusters.models, clusters.partition, work, weighted_mean,
        purpose="final", participation=options.participation,
    )  # fmt: skip
    clusters = Clusters(clusters.partition, models)
    run.record("FINAL", clusters.partition, clusters.client_models)
    return clusters


def onto_ball(models: Tensor, centre: Tensor, diameter: float) -> Tensor:
    """The nearest points of the ball of this diameter around ``centre``: [k, P]."""
    away = models - centre
    norm = away.norm(dim=1, keepdim=True).clamp(min=torch.finfo(models.dtype).tiny)
    return torch.as_tensor(centre + away * (diameter / 2 / norm).clamp(max=1.0))
