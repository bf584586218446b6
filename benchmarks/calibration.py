"""Are clients with confidence c in the right cluster in about c of the cases?

    SRFCA_DATA=... python benchmarks/calibration.py --seeds 5 --figure docs/figures/confidence.png

SR-FCA and IFCA cluster federations with known groups, most of them hard: few samples, similar
groups, two swapped labels, label skew, unequal groups, small clusters. A client is right if most
clients of its cluster are of its group, or, if its group is the majority nowhere, if it is in the
cluster that holds most of its group. ``moved`` are the same results after a part of the clients
were moved by hand to another cluster, which is wrong for most of them.

Formulas for the confidence are compared, each with a temperature that is fitted to the clients of
SR-FCA in all other federations (leave one federation out): by log loss and by expected calibration
error (ECE), the mean distance between confidence and the fraction that is right in ten bins.

``--newcomers`` measures instead how well the confidence of ``Result.assign`` is calibrated, for
newcomers of 5, 10 and 20 samples of the same groups.

``--stability`` measures instead whether the stability of a cluster tells right clusters from wrong
ones, as found and after a part of the clients were moved by hand.

Needs MNIST (``srfca data get mnist``) and Fashion-MNIST (``srfca data get fashion_mnist``) for a
part of the federations; ``--only`` with digits and synthetic data needs nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from srfca import SRFCA, ClientData, LocalTraining, Result, Simulation, data, models
from srfca.analysis.confidence import TEMPERATURE, memberships, t_statistics
from srfca.analysis.evidence import (
    Evidence,
    collect_evidence,
    paired_variances,
    positions_of,
    shared_clusters,
)
from srfca.analysis.stability import jaccard_stability
from srfca.data import federate
from srfca.data.datasets.rotated_digits import read_digits
from srfca.data.loaders import fashion_mnist, mnist
from srfca.data.partitioners import DirichletPartitioner, Partitioner, PathologicalPartitioner
from srfca.data.transforms import Transform, permute_labels, rotate, unchanged
from srfca.federation import BootstrapLosses
from srfca.federation.bootstrap import ComparedLosses
from srfca.methods import IFCA

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

LOCAL = LocalTraining(steps=150, local_steps=5, batch_size=20, optimizer="adam", lr=0.005)
LONG = replace(LOCAL, steps=600, local_steps=10)
REGRESSION = replace(LOCAL, lr=0.02)
MOVED = 0.15
"""Part of the clients that are moved by hand."""
REPLICATES = 200
STABLE, UNSTABLE = 0.75, 0.6
"""Above the first a cluster is called stable, below the second it should not be trusted."""
BINS = 10
TEMPERATURES = np.geomspace(0.25, 32, 57)


def swapped(*pairs: tuple[int, int]) -> Transform:
    """Return a transform that swaps pairs of labels."""
    order = list(range(10))
    for first, second in pairs:
        order[first], order[second] = order[second], order[first]
    return permute_labels(order)


def permuted(seed: int) -> Transform:
    """Return a transform that permutes the labels."""
    return permute_labels(np.random.default_rng(seed).permutation(10).tolist())


def turned(*degrees: int) -> list[Transform]:
    """Return rotations."""
    return [rotate(angle) for angle in degrees]


@dataclass(frozen=True)
class Setting:
    """A federation with known groups.

    Args:
        images: ``digits``, ``mnist``, ``fashion``; or ``synthetic``, linear regressions.
        groups: What is done to the images and labels of each group.
        samples: Training samples of each client.
        shares: Shares of the groups; None is equal ones.
        partitioner: Deals samples to clients; None deals at random.
        clients: How many.
        local: How clients train.
        num_groups: Number of groups of synthetic regressions.
    """

    images: str
    groups: Sequence[Transform]
    samples: int
    shares: Sequence[float] | None = None
    partitioner: Partitioner | None = None
    clients: int = 48
    local: LocalTraining = field(default=LOCAL)
    num_groups: int = 3

    def federation(self, seed: int) -> Simulation:
        """Return the clients."""
        if self.images == "synthetic":
            clients = data.synthetic(
                num_clients=self.clients, clusters=self.num_groups, dimension=20,
                samples=self.samples,
                noise=2.0, seed=seed,
            )  # fmt: skip
            return Simulation(clients, models.linear(20), seed=seed, device="cpu")
        x, y = read_images(self.images, seed)
        network = models.mlp(64, 32, 10) if self.images == "digits" else models.mlp(784, 32, 10)
        made: ClientData = federate(
            x, y, num_clients=self.clients, clusters=self.groups, shares=self.shares,
            sizes=self.samples, partitioner=self.partitioner, reuse=True, standardize="no",
            seed=seed,
        )  # fmt: skip
        return Simulation(made, network, seed=seed, device="cpu")


def read_images(name: str, seed: int) -> tuple[NDArray[np.uint8], Labels]:
    """Return images and labels; of the larger sets, 12,000 at random."""
    if name == "digits":
        images, labels = read_digits()
        return (images * 255 / 16).astype(np.uint8), labels
    loaded = mnist.load(None) if name == "mnist" else fashion_mnist.load(None)
    chosen = np.random.default_rng(seed).permutation(len(loaded.train_x))[:12_000]
    return loaded.train_x[chosen], loaded.train_y[chosen]


FEDERATIONS = {
    "digits, 4 rotations, n = 40": Setting("digits", turned(0, 90, 180, 270), 40),
    "digits, 0/30 degrees, n = 20": Setting("digits", turned(0, 30), 20),
    "digits, 0/45/90 degrees, n = 20": Setting("digits", turned(0, 45, 90), 20),
    "digits, 0/90 degrees, n = 10": Setting("digits", turned(0, 90), 10),
    "digits, 3 and 8 swapped, n = 40": Setting("digits", [unchanged, swapped((3, 8))], 40),
    "digits, two pairs swapped, n = 20": Setting(
        "digits", [unchanged, swapped((3, 8), (1, 7))], 20
    ),
    "digits, label permutations, n = 10": Setting(
        "digits", [permuted(1), permuted(2), permuted(3)], 10
    ),
    "digits, unequal groups, n = 20": Setting("digits", turned(0, 90), 20, [0.85, 0.15]),
    "digits, 0/180 degrees, Dirichlet(0.5), n = 40": Setting(
        "digits", turned(0, 180), 40, partitioner=DirichletPartitioner(alpha=0.5)
    ),
    "digits, 12 clients, 600 steps, n = 20": Setting(
        "digits", turned(0, 45, 90), 20, clients=12, local=LONG
    ),
    "synthetic regressions, n = 25": Setting("synthetic", [], 25, local=REGRESSION),
    "synthetic regressions, 12 groups, n = 25": Setting(
        "synthetic", [], 25, clients=96, local=REGRESSION, num_groups=12
    ),
    "digits, 8 label permutations, n = 20": Setting(
        "digits", [permuted(seed) for seed in range(8)], 20, clients=80
    ),
    "MNIST, 0/30/60/90 degrees, n = 40": Setting("mnist", turned(0, 30, 60, 90), 40),
    "MNIST, 4/9 or 3/8 swapped, n = 40": Setting(
        "mnist", [unchanged, swapped((4, 9)), swapped((3, 8))], 40
    ),
    "MNIST, 4 classes a client, n = 20": Setting(
        "mnist", turned(0, 180), 20, partitioner=PathologicalPartitioner(4)
    ),
    "MNIST, 12 clients, 600 steps, n = 40": Setting(
        "mnist", [unchanged, swapped((4, 9), (3, 8))], 40, clients=12, local=LONG
    ),
    "Fashion-MNIST, 0/90/180 degrees, n = 20": Setting("fashion", turned(0, 90, 180), 20),
    "Fashion-MNIST, two labels swapped, n = 40": Setting(
        "fashion", [unchanged, swapped((0, 6)), swapped((2, 4))], 40
    ),
    "Fashion-MNIST, 0/20 degrees, n = 100": Setting("fashion", turned(0, 20), 100),
    "Fashion-MNIST, permutations, Dirichlet(0.3), n = 40": Setting(
        "fashion", [permuted(4), permuted(5)], 40, partitioner=DirichletPartitioner(alpha=0.3)
    ),
}


@dataclass(frozen=True, eq=False)
class Case:
    """The clients of one run, as they were placed or after some were moved by hand.

    Args:
        federation: Its name.
        method: ``SR-FCA`` or ``IFCA``.
        moved: Whether clients were moved.
        position: ``[c]`` the position of each client's cluster.
        right: ``[c]`` whether it is the right one.
        all_data: Evidence of training and held-out data.
        corrected: The same, with the optimism of training losses: the loss of a cluster's model on
            training samples of its clients is raised by the median over these clients of held-out
            loss minus training loss.
        held_out: Evidence of held-out data alone.
        sizes: ``[q]`` of the clusters.
    """

    federation: str
    method: str
    moved: bool
    position: Labels
    right: NDArray[np.bool_]
    all_data: Evidence
    corrected: Evidence
    held_out: Evidence
    sizes: Array


def right_clusters(labels: Labels, truth: Labels, clusters: Labels) -> NDArray[np.bool_]:
    """Return whether each cluster is right for each client: ``[m, q]``."""
    table = np.array([[((labels == c) & (truth == g)).sum() for g in range(truth.max() + 1)]
                      for c in clusters])  # fmt: skip
    majority = table.argmax(1)
    right = np.zeros((len(truth), len(clusters)), dtype=bool)
    for group in range(truth.max() + 1):
        suitable = majority == group
        if not suitable.any():
            suitable = np.arange(len(clusters)) == table[:, group].argmax()
        right[truth == group] = suitable
    return right


def cases(name: str, seed: int) -> Iterator[Case]:
    """Yield the cases of one federation; none if a method finds a single cluster."""
    setting = FEDERATIONS[name]
    federation = setting.federation(seed)
    truth = federation.data.truth
    assert truth is not None
    k, start = truth.num_clusters, "clients" if setting.images == "synthetic" else "random"
    methods = SRFCA(local=setting.local), IFCA(k=k, start=start, local=setting.local)
    rng = np.random.default_rng(seed)
    for method in methods:
        result = method.fit(federation, seed=seed)
        clusters = shared_clusters(result.labels)
        if len(clusters) < 2:
            continue
        suitable = right_clusters(result.labels, truth.labels, clusters)
        for moved in (False, True):
            labels = move(result.labels, clusters, rng) if moved else result.labels
            yield make_case(federation, replace(result, labels=labels), clusters, suitable, name,
                            moved)  # fmt: skip


def move(labels: Labels, clusters: Labels, rng: np.random.Generator) -> Labels:
    """Return labels after a part of the clients in clusters were moved to another cluster."""
    positions, labels = positions_of(labels, clusters), labels.copy()
    for client in np.flatnonzero((positions >= 0) & (rng.random(len(labels)) < MOVED)):
        if (labels == labels[client]).sum() > 2:
            labels[client] = rng.choice(np.delete(clusters, positions[client]))
    return labels


def make_case(
    federation: Simulation,
    result: Result,
    clusters: Labels,
    suitable: NDArray[np.bool_],
    name: str,
    moved: bool,
) -> Case:
    """Collect the evidence of one result."""
    everyone = np.arange(len(result.labels))
    placed = positions_of(result.labels, clusters)
    members = np.flatnonzero(placed >= 0)
    rows = result.models[torch.as_tensor(clusters)]

    def compare(*splits: Any) -> Evidence:
        request = BootstrapLosses(everyone, rows, splits, REPLICATES, result.seed)
        compared = ComparedLosses.unpack(federation.ask(request).values)
        return evidence_of(compared, clusters, members)

    every_sample = collect_evidence(
        federation, result.models, result.labels, REPLICATES, result.seed
    )
    all_data, held_out = select(every_sample, members), compare("validation")
    corrected = with_optimism(all_data, compare("train"), held_out, placed[members])
    return Case(
        name, result.method, moved, placed[members], suitable[members, placed[members]], all_data,
        corrected, held_out,
        np.bincount(placed[members], minlength=len(clusters)).astype(np.float64),
    )  # fmt: skip


def with_optimism(
    all_data: Evidence, train: Evidence, held_out: Evidence, position: Labels
) -> Evidence:
    """Raise the losses of training samples by what a cluster's model does better on them."""
    losses, rows = all_data.losses.copy(), np.arange(len(position))
    gaps = (held_out.losses - train.losses)[rows, position]
    for cluster in range(losses.shape[1]):
        members = position == cluster
        optimism = max(0.0, float(np.median(gaps[members]))) if members.any() else 0.0
        losses[members, cluster] += (optimism * train.samples / all_data.samples)[members]
    return replace(all_data, losses=losses)


def evidence_of(compared: ComparedLosses, clusters: Labels, members: Labels) -> Evidence:
    """Return what clients report, of some of them."""
    mean, share = compared.mean.numpy(), compared.share.numpy()
    samples = compared.num_samples.numpy()
    return select(Evidence(clusters, mean, share, paired_variances(compared), samples), members)


def select(evidence: Evidence, clients: Labels) -> Evidence:
    """Return the evidence of some clients."""
    parts = (evidence.losses, evidence.shares, evidence.variances, evidence.samples)
    return Evidence(evidence.clusters, *(part[clients] for part in parts))


Formula = Callable[[Case, float], Array]
"""From a case and a temperature to the probabilities of all clusters: ``[c, q]``."""


def bootstrap(evidence: Callable[[Case], Evidence]) -> Formula:
    """Return the share of resamples, smoothed by the temperature."""

    def formula(case: Case, temperature: float) -> Array:
        shares = evidence(case).shares * REPLICATES
        return (shares + temperature) / (REPLICATES + temperature * shares.shape[1])

    return formula


def normal(evidence: Callable[[Case], Evidence]) -> Formula:
    """Return the normal approximation of the paired margin."""
    return lambda case, temperature: memberships(t_statistics(evidence(case)), temperature)


def posterior(evidence: Callable[[Case], Evidence]) -> Formula:
    """Return the posterior: cluster size times exp(-n loss / T)."""

    def formula(case: Case, temperature: float) -> Array:
        part = evidence(case)
        logits = np.log(np.maximum(case.sizes, 0.5))
        logits = logits - part.samples[:, None] * part.losses / temperature
        odds = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(odds / odds.sum(1, keepdims=True))

    return formula


CHOSEN = "normal, all data"
FORMULAS: dict[str, Formula] = {
    "bootstrap share, held-out data": bootstrap(lambda case: case.held_out),
    "posterior, held-out data": posterior(lambda case: case.held_out),
    "normal, held-out data": normal(lambda case: case.held_out),
    "bootstrap share, all data": bootstrap(lambda case: case.all_data),
    "posterior, all data": posterior(lambda case: case.all_data),
    "normal, all data, optimism corrected": normal(lambda case: case.corrected),
    CHOSEN: normal(lambda case: case.all_data),
}


def confidences(formula: Formula, case: Case, temperature: float) -> Array:
    """Return the probability of each client's own cluster: ``[c]``."""
    return formula(case, temperature)[np.arange(len(case.position)), case.position]


def log_loss(confidence: Array, right: NDArray[np.bool_]) -> float:
    """Return the mean log loss, with probabilities from 0.001 to 0.999."""
    clipped = np.clip(confidence, 1e-3, 1 - 1e-3)
    return float(-np.log(np.where(right, clipped, 1 - clipped)).mean())


def calibration_error(confidence: Array, right: NDArray[np.bool_]) -> float:
    """Return the expected calibration error, in bins of equal width."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs((confidence[bins == b] - right[bins == b]).sum()) for b in range(BINS)]
    return float(sum(gaps) / len(confidence))


def fit(formula: Formula, chosen: Sequence[Case]) -> float:
    """Return the temperature of least log loss."""
    right = np.concatenate([case.right for case in chosen])
    losses = [
        log_loss(np.concatenate([confidences(formula, c, float(t)) for c in chosen]), right)
        for t in TEMPERATURES
    ]
    return float(TEMPERATURES[int(np.argmin(losses))])


@dataclass(frozen=True)
class Calibrated:
    """Confidences of the clients of some cases, and which are right."""

    confidence: Array
    right: NDArray[np.bool_]

    @classmethod
    def of(cls, parts: Sequence[tuple[Array, NDArray[np.bool_]]]) -> Calibrated:
        """Join the clients of several cases."""
        return cls(np.concatenate([c for c, _ in parts]), np.concatenate([r for _, r in parts]))


def leave_one_out(
    formula: Formula, everything: Sequence[Case]
) -> tuple[dict[tuple[str, bool], Calibrated], list[float]]:
    """Return confidences with temperatures fitted to other federations, and these temperatures.

    Temperatures are fitted to the clients of SR-FCA, as placed and moved.
    """
    parts: dict[tuple[str, bool], list[tuple[Array, NDArray[np.bool_]]]] = {}
    temperatures = []
    for name in dict.fromkeys(case.federation for case in everything):
        others = [c for c in everything if c.federation != name and c.method == "SR-FCA"]
        temperatures.append(fit(formula, others))
        for case in everything:
            if case.federation == name:
                confidence = confidences(formula, case, temperatures[-1])
                group = parts.setdefault((case.method, case.moved), [])
                group.append((confidence, case.right))
    return {key: Calibrated.of(group) for key, group in parts.items()}, temperatures


def formula_table(everything: Sequence[Case]) -> str:
    """Return a table in Markdown: log loss and ECE of each formula, on federations left out."""
    groups = [("SR-FCA", False), ("SR-FCA", True), ("IFCA", False), ("IFCA", True)]
    titles = [f"{method}{', moved' * moved}" for method, moved in groups]
    lines = ["| formula | T | " + " | ".join(titles) + " |"]
    lines.append("|---|---:|" + "---:|" * len(titles))
    for name, formula in FORMULAS.items():
        calibrated, temperatures = leave_one_out(formula, everything)
        cells = [
            f"{log_loss(part.confidence, part.right):.3f} / "
            f"{100 * calibration_error(part.confidence, part.right):.1f}"
            for part in (calibrated[group] for group in groups)
        ]
        low, high = min(temperatures), max(temperatures)
        span = f"{low:.2g}" if f"{low:.2g}" == f"{high:.2g}" else f"{low:.2g} to {high:.2g}"
        lines.append(f"| {name} | {span} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


EDGES = (0.0, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 1.0)
"""Limits of the lines of the reliability table."""


def reliability_table(groups: dict[str, Calibrated]) -> str:
    """Return a table in Markdown: the fraction that is right by confidence."""
    heads = " | ".join(f"{name}: clients | mean confidence | right" for name in groups)
    lines = [f"| confidence | {heads} |", "|---|" + "---:|---:|---:|" * len(groups)]
    for low, high in pairwise(EDGES):
        cells = []
        for part in groups.values():
            last = high == EDGES[-1]
            inside = (part.confidence >= low) & ((part.confidence < high) | last)
            if not inside.any():
                cells.append("0 | - | -")
                continue
            mean, right = part.confidence[inside].mean(), part.right[inside].mean()
            cells.append(f"{inside.sum()} | {100 * mean:.1f} % | {100 * right:.1f} %")
        lines.append(f"| {low:.2f} to {high:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def federation_table(everything: Sequence[Case]) -> str:
    """Return a table in Markdown: the clients of SR-FCA in each federation, and the wrong ones."""
    lines = ["| federation | clients | wrong | mean confidence of right | of wrong | of moved |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for name in dict.fromkeys(case.federation for case in everything):
        chosen = [c for c in everything if c.federation == name and c.method == "SR-FCA"]
        if not chosen:
            lines.append(f"| {name} | 0 | - | - | - | - |")
            continue
        values = {}
        for moved in (False, True):
            parts = [(confidences(FORMULAS[CHOSEN], c, TEMPERATURE), c.right)
                     for c in chosen if c.moved == moved]  # fmt: skip
            values[moved] = Calibrated.of(parts)
        placed, moved_part = values[False], values[True]
        wrong = ~placed.right
        cells = [f"{len(wrong)}", f"{wrong.sum()}", _percent(placed.confidence[~wrong])]
        cells += [_percent(placed.confidence[wrong])]
        cells += [_percent(moved_part.confidence[~moved_part.right])]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _percent(values: Array) -> str:
    return f"{100 * values.mean():.0f} %" if len(values) else "-"


def draw(groups: dict[str, Calibrated], path: Path) -> None:
    """Draw the reliability curves."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(4.6, 4.2))
    axis.plot([0, 1], [0, 1], color="#c9ccd1", linewidth=1)
    colors = ("#1b7f5c", "#7fb8a4", "#8a8f98", "#c08a3e")
    for (name, part), color in zip(groups.items(), colors, strict=False):
        bins = np.minimum((part.confidence * BINS).astype(int), BINS - 1)
        inside = [bins == b for b in range(BINS) if (bins == b).sum() >= 10]
        x = [part.confidence[chosen].mean() for chosen in inside]
        y = [part.right[chosen].mean() for chosen in inside]
        error = [np.sqrt(max(v * (1 - v), 0.01) / chosen.sum())
                 for v, chosen in zip(y, inside, strict=True)]  # fmt: skip
        axis.errorbar(x, y, error, marker="o", markersize=4, linewidth=1.2, color=color, label=name)
    axis.set_xlabel("confidence")
    axis.set_ylabel("fraction of clients in the right cluster")
    axis.legend(frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def report(everything: Sequence[Case]) -> tuple[str, dict[str, Calibrated]]:
    """Return the tables, and the confidences of the chosen formula with its constant."""
    groups = {}
    for method in ("SR-FCA", "IFCA"):
        for moved in (False, True):
            chosen = [c for c in everything if (c.method, c.moved) == (method, moved)]
            parts = [(confidences(FORMULAS[CHOSEN], c, TEMPERATURE), c.right) for c in chosen]
            if parts:
                groups[method + ", moved" * moved] = Calibrated.of(parts)
    fitted = fit(FORMULAS[CHOSEN], [c for c in everything if c.method == "SR-FCA"])
    errors = ", ".join(
        f"{name} {100 * calibration_error(part.confidence, part.right):.1f} %"
        for name, part in groups.items()
    )
    text = [
        "Log loss / ECE in %, temperatures fitted to other federations:\n",
        formula_table(everything),
        f"\nWith T = {TEMPERATURE} (fitted to all federations: {fitted:.2f}), ECE: {errors}.\n",
        reliability_table(groups),
        "\nSR-FCA by federation:\n",
        federation_table(everything),
    ]
    return "\n".join(text), groups


def newcomers(name: str, seed: int) -> Iterator[tuple[Array, NDArray[np.bool_]]]:
    """Yield confidences of newcomers, and whether the nearest cluster is the right one."""
    setting = FEDERATIONS[name]
    federation = setting.federation(seed)
    truth = federation.data.truth
    assert truth is not None
    result = SRFCA(local=setting.local).fit(federation, seed=seed)
    clusters = np.arange(result.partition.num_clusters)
    if len(shared_clusters(result.labels)) < 2:
        return
    suitable = right_clusters(result.labels, truth.labels, clusters)
    of_group = {int(group): suitable[client] for client, group in enumerate(truth.labels)}
    for samples in (5, 10, 20):
        others = replace(setting, samples=samples, partitioner=None, shares=None)
        new = others.federation(seed + 10_000)
        assert new.data.truth is not None
        assignment = result.assign(new)
        nearest = assignment.losses.numpy().argmin(1)
        groups = new.data.truth.labels.tolist()
        right = [of_group[group][best] for group, best in zip(groups, nearest, strict=True)]
        yield assignment.confidence, np.array(right)


@dataclass(frozen=True, eq=False)
class Clusters:
    """The clusters of one run, as they were found or after some clients were moved by hand.

    Args:
        federation: Its name.
        method: ``SR-FCA`` or ``IFCA``.
        moved: Whether clients were moved.
        stability: ``[q]``
        pure: ``[q]`` whether all clients are of one group.
        similarity: ``[q]`` Jaccard similarity of the cluster and the group that is nearest to it.
    """

    federation: str
    method: str
    moved: bool
    stability: Array
    pure: NDArray[np.bool_]
    similarity: Array


def stabilities(name: str, seed: int) -> Iterator[Clusters]:
    """Yield the clusters of one federation; none if a method finds a single cluster."""
    setting = FEDERATIONS[name]
    federation = setting.federation(seed)
    truth = federation.data.truth
    assert truth is not None
    k, start = truth.num_clusters, "clients" if setting.images == "synthetic" else "random"
    rng = np.random.default_rng(seed)
    for method in (SRFCA(local=setting.local), IFCA(k=k, start=start, local=setting.local)):
        result = method.fit(federation, seed=seed)
        clusters = shared_clusters(result.labels)
        if len(clusters) < 2:
            continue
        evidence = collect_evidence(
            federation, result.models, result.labels, REPLICATES, result.seed
        )
        for moved in (False, True):
            labels = move(result.labels, clusters, rng) if moved else result.labels
            placed = positions_of(labels, clusters)
            stability = jaccard_stability(
                evidence.shares, placed, federation.client_ids, REPLICATES, result.seed
            )
            counts = np.array([[((labels == c) & (truth.labels == g)).sum() for g in range(k)]
                               for c in clusters])  # fmt: skip
            sizes = counts.sum(1, keepdims=True)
            union = sizes + np.bincount(truth.labels, minlength=k) - counts
            yield Clusters(
                name, result.method, moved, stability, (counts == sizes).any(1),
                (counts / union).max(1),
            )  # fmt: skip


def stability_table(everything: Sequence[Clusters]) -> str:
    """Return a table in Markdown: the mean stability by federation, and by method."""
    lines = ["| federation | pure | stability | impure | stability | moved: all | stability |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    parts = {
        name: [part for part in everything if part.federation == name]
        for name in dict.fromkeys(part.federation for part in everything)
    }
    for method in ("SR-FCA", "IFCA"):
        parts[f"all, {method}"] = [part for part in everything if part.method == method]
    for name, chosen in parts.items():
        found = [part for part in chosen if not part.moved]
        pure = np.concatenate([part.pure for part in found])
        values = np.concatenate([part.stability for part in found])
        after = np.concatenate([part.stability for part in chosen if part.moved])
        cells: list[str] = []
        for group in (values[pure], values[~pure], after):
            cells += [str(len(group)), f"{group.mean():.2f}" if len(group) else "-"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def threshold_table(everything: Sequence[Clusters]) -> str:
    """Return a table in Markdown: what clusters are like above, between and below the thresholds.

    ``near a group``: their Jaccard similarity to a group is at least that of a stable cluster.
    """
    lines = [
        "| clusters | stability | clusters | pure | near a group | mean similarity to a group |"
    ]
    lines.append("|---|---|---:|---:|---:|---:|")
    ranges = (
        (f"above {STABLE}", STABLE, np.inf),
        (f"{UNSTABLE} to {STABLE}", UNSTABLE, STABLE),
        (f"below {UNSTABLE}", -np.inf, UNSTABLE),
    )
    for method, moved in (("SR-FCA", False), ("SR-FCA", True), ("IFCA", False), ("IFCA", True)):
        parts = [part for part in everything if (part.method, part.moved) == (method, moved)]
        if not parts:
            continue
        stability = np.concatenate([part.stability for part in parts])
        pure = np.concatenate([part.pure for part in parts])
        similarity = np.concatenate([part.similarity for part in parts])
        for title, low, high in ranges:
            inside = (stability > low) & (stability <= high)
            cells = [f"{inside.sum()}", *["-"] * 3]
            if inside.any():
                near = (similarity[inside] >= STABLE).mean()
                cells[1:] = [f"{pure[inside].mean():.0%}", f"{near:.0%}",
                             f"{similarity[inside].mean():.2f}"]  # fmt: skip
            lines.append(f"| {method}{', moved' * moved} | {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run all federations, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--only", nargs="*", help="federations whose names begin with one of these")
    parser.add_argument("--newcomers", action="store_true", help="the confidence of newcomers")
    parser.add_argument("--stability", action="store_true", help="the stability of clusters")
    parser.add_argument("--figure", type=Path, help="draw the reliability curves")
    options = parser.parse_args()
    names = [n for n in FEDERATIONS if not options.only or n.startswith(tuple(options.only))]
    seeds = range(options.seed, options.seed + options.seeds)
    if options.newcomers:
        pairs = [p for n in names if "synthetic" not in n for s in seeds for p in newcomers(n, s)]
        part = Calibrated.of(pairs)
        error = 100 * calibration_error(part.confidence, part.right)
        print(f"Newcomers: {len(part.right)}, ECE {error:.1f} %\n")
        print(reliability_table({"newcomers": part}))
        return
    if options.stability:
        clusters = [part for n in names for s in seeds for part in stabilities(n, s)]
        print(f"{stability_table(clusters)}\n\n{threshold_table(clusters)}")
        return
    everything: list[Case] = []
    for name in names:
        start = perf_counter()
        for seed in seeds:
            everything += cases(name, seed)
        print(f"{name}: {perf_counter() - start:.0f} s", flush=True)
    text, groups = report(everything)
    print(f"\n{text}")
    if options.figure:
        draw(groups, options.figure)


if __name__ == "__main__":
    main()
