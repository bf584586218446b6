"""Draw the figures of the docs.

pip install 'srfca[figures]' && python docs/make_figures.py
python docs/make_figures.py --only pictures    # those of "SR-FCA by pictures"
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from srfca import SRFCA, ClientData, LocalTraining, Result, Simulation, models
from srfca.experiments import config, runner
from srfca.methods import FedAvg, Local

SEEDS = range(5)
COLORS = {"sr-fca": "#1b7f5c", "global": "#8a8f98", "local": "#c9ccd1"}
NAMES = {"sr-fca": "SR-FCA", "global": "Global", "local": "Local"}


def rotated_digits(folder: Path) -> None:
    """Draw the distances of clients, unordered and by cluster, and test accuracies over seeds."""
    experiment = config.load("rotated-digits")
    accuracies: dict[str, list[float]] = {key: [] for key in NAMES}
    first = {}
    for seed in SEEDS:
        federation = runner.make_federation(experiment, seed)
        for key in NAMES:
            result = runner.make_method(experiment, key).fit(federation, seed)
            accuracies[key].append(100 * float(result.scores(federation).accuracy.mean()))
            first.setdefault(key, result)
    distances = np.array(first["sr-fca"].history[0].distances)
    np.fill_diagonal(distances, np.nan)
    order = np.argsort(first["sr-fca"].labels, kind="stable")

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), width_ratios=[1, 1, 1.1])
    matrices = {
        "Distances of the local models": distances,
        "The same, ordered by cluster": distances[np.ix_(order, order)],
    }
    for axis, (title, matrix) in zip(axes, matrices.items(), strict=False):
        axis.imshow(matrix, cmap="viridis_r")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("client")
        axis.set_xticks([])
        axis.set_yticks([])
    bars = axes[2]
    for position, (key, values) in enumerate(accuracies.items()):
        bars.bar(position, np.mean(values), color=COLORS[key], width=0.65)
        bars.plot([position] * len(values), values, ".", color="black", alpha=0.6)
        bars.text(position, 51.5, f"{np.mean(values):.1f}", ha="center", fontsize=11)
    bars.set_xticks(range(3), NAMES.values())
    bars.set_ylim(50, 100)
    bars.set_title("Test accuracy, %: mean and 5 seeds", fontsize=10)
    bars.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(folder / "rotated-digits.png", dpi=130)


SENSORS, SAMPLES, ANGLES = 24, 40, 3
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")
"""Of Okabe and Ito: safe for the color-blind."""
SHADES = (
    ("#0072b2", "#7cc0e8", "#00395a"),
    ("#d98200", "#f7cf87", "#7a4a00"),
    ("#00805f", "#85d3bd", "#00402f"),
)
"""Of the clusters of each group, in turn."""
MARKERS = ("o", "s", "^")
QUADRANTS = ("NE", "SE", "SW", "NW")
LOCAL = LocalTraining(steps=100, batch_size=10, optimizer="adam", lr=0.01)


def pictures(folder: Path) -> None:
    """Draw what each step of the paper's SR-FCA does to 24 sensors in three groups."""
    clients = sensors(seed=0)
    federation = Simulation(clients, models.mlp(2, 32, 4))
    method = SRFCA.as_in_paper(threshold="16%", local=LOCAL)
    result = method.fit(federation, seed=0)
    draw_clients(clients, folder / "pictures-clients.png")
    draw_distances(result, folder / "pictures-distances.png")
    draw_steps(result, clients.truth.labels, folder / "pictures-steps.png")
    draw_trimmed_mean(folder / "pictures-trimmed_mean.png")
    draw_gain(folder / "pictures-gain.png")


def sensors(seed: int) -> ClientData:
    """Return sensors that report in which quadrant a point is, mounted at 0, 120 or 240 degrees."""

    def draw(rng: np.random.Generator, sensor: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
        points = rng.normal(size=(samples, 2)).astype(np.float32)
        angle = np.arctan2(points[:, 0], points[:, 1]) + 2 * np.pi * (sensor % ANGLES) / ANGLES
        return points, (angle // (np.pi / 2)).astype(int) % 4

    rng = np.random.default_rng(seed)
    train = [draw(rng, sensor, SAMPLES) for sensor in range(SENSORS)]
    test = [draw(rng, sensor, 100) for sensor in range(SENSORS)]
    return ClientData.from_arrays(train, test, [sensor % ANGLES for sensor in range(SENSORS)])


def draw_clients(clients: ClientData, path: Path) -> None:
    """Draw the data of four clients: the first of each group, and a second of the first group."""
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.7), sharex=True, sharey=True)
    for axis, client in zip(axes, (0, 3, 1, 2), strict=True):
        points, labels = (np.asarray(part) for part in clients.train.of(client))
        for label, (name, color) in enumerate(zip(QUADRANTS, PALETTE, strict=True)):
            chosen = points[labels == label]
            axis.scatter(*chosen.T, color=color, s=26, marker="osD^"[label], label=name)
        axis.set_title(f"Sensor {client}", fontsize=10)
        axis.set_aspect("equal")
        axis.set_xticks([])
        axis.set_yticks([])
    axes[0].set_xlim(-3.8, 3.8)
    axes[0].set_ylim(-3.8, 3.8)
    names = {"title": "reports", "loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
    axes[-1].legend(**names, frameon=False)
    save(figure, path)


def draw_distances(result: Result, path: Path) -> None:
    """Draw the distances of the local models, in order of the groups, and their histogram."""
    distances = off_diagonal(result)
    order = np.argsort(np.arange(SENSORS) % ANGLES, kind="stable")
    threshold = float(result.history[0].notes["threshold"])
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), width_ratios=[1, 1, 1.25])
    titles = ("Distances of the local models", "The same, ordered by group")
    for axis, title, matrix in zip(
        axes, titles, (distances, distances[np.ix_(order, order)]), strict=False
    ):
        axis.imshow(matrix, cmap="viridis_r")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("sensor")
        axis.set_xticks([])
        axis.set_yticks([])
    values = distances[np.triu_indices(SENSORS, 1)]
    bins = np.geomspace(values.min(), values.max(), 40)
    axes[2].hist(values, bins=bins, color="#8a8f98")
    axes[2].set_xscale("log")
    axes[2].set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    axes[2].axvline(threshold, color="#b3261e", linewidth=2)
    axes[2].text(
        threshold, 0.97, "  lambda: pairs left of it\n  get an edge", color="#b3261e", va="top",
        transform=axes[2].get_xaxis_transform(), fontsize=9,
    )  # fmt: skip
    axes[2].set_title("All pairs of sensors", fontsize=10)
    axes[2].set_xlabel("distance")
    axes[2].set_yticks([])
    axes[2].spines[["top", "right", "left"]].set_visible(False)
    save(figure, path)


def draw_steps(result: Result, truth: np.ndarray, path: Path) -> None:
    """Draw the clusters after each step; clients with similar local models are near each other.

    Colors are clusters, in shades of a color for each true group; shapes are the true groups.
    """
    places = around_corners(np.nan_to_num(off_diagonal(result)), truth)
    edges = np.argwhere(np.triu(off_diagonal(result) <= result.history[0].notes["threshold"], 1))
    stages = {stage.name: np.asarray(stage.labels) for stage in result.history}
    panels = {
        "Clients train alone": np.full(SENSORS, -1),
        "ONE_SHOT: edges and clusters": stages["ONE_SHOT"],
        "RECLUSTER": stages["RECLUSTER 1"],
        "MERGE": stages["MERGE 1"],
    }
    figure, axes = plt.subplots(1, 4, figsize=(11, 3.2), sharex=True, sharey=True)
    for axis, (title, labels) in zip(axes, panels.items(), strict=True):
        colors = cluster_colors(labels, truth)
        if title.startswith("ONE_SHOT"):
            for one, other in edges:
                axis.plot(*places[[one, other]].T, color="#c9ccd1", linewidth=0.8, zorder=1)
        for client, (place, label) in enumerate(zip(places, labels, strict=True)):
            axis.scatter(
                *place, marker=MARKERS[truth[client]], s=46, zorder=2, linewidth=1.2,
                color=colors[int(label)] if label >= 0 else "white",
                edgecolor="#444a52" if label < 0 else "white",
            )  # fmt: skip
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(describe(labels), fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
    axes[0].margins(0.12)
    save(figure, path)


def cluster_colors(labels: np.ndarray, truth: np.ndarray) -> dict[int, str]:
    """Return a color for each cluster: a shade of the color of the group that most are of."""
    shades = {group: iter(colors) for group, colors in enumerate(SHADES)}
    clusters = np.unique(labels[labels >= 0])
    larger_first = sorted(clusters, key=lambda label: -(labels == label).sum())
    groups = {int(c): int(np.bincount(truth[labels == c]).argmax()) for c in larger_first}
    return {cluster: next(shades[group]) for cluster, group in groups.items()}


def describe(labels: np.ndarray) -> str:
    """Return how many clusters and unclustered clients there are, in words."""
    if (labels < 0).all():
        return f"{SENSORS} clients"
    clusters = len(np.unique(labels[labels >= 0]))
    unclustered = int((labels < 0).sum())
    return f"{clusters} clusters" + (f", {unclustered} unclustered" if unclustered else "")


def draw_trimmed_mean(path: Path) -> None:
    """Draw one coordinate of ten clients' models, one of them misplaced, and what is made of it."""
    rng = np.random.default_rng(1)
    values = np.append(rng.normal(1.0, 0.25, 9), 4.0)
    dropped = np.sort(values)[[0, -1]]
    kept = np.sort(values)[1:-1]
    figure, axis = plt.subplots(figsize=(7.5, 1.9))
    axis.scatter(kept, np.zeros(len(kept)), s=60, color=PALETTE[0], label="kept")
    axis.scatter(dropped, [0, 0], s=60, color="white", edgecolor="#444a52", label="dropped")
    for value, name, color, height in (
        (values.mean(), "mean", "#b3261e", 0.72),
        (kept.mean(), "trimmed mean", PALETTE[0], 0.72),
    ):
        axis.axvline(value, color=color, linewidth=2)
        side = "left" if name == "mean" else "right"
        axis.text(
            value, height, f" {name} ", color=color, ha=side, transform=axis.get_xaxis_transform()
        )
    axis.set_ylim(-1, 1)
    axis.set_yticks([])
    axis.set_xlabel("one coordinate of the models of a cluster's clients")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.7, 1))
    save(figure, path)


def draw_gain(path: Path) -> None:
    """Draw test accuracies over seeds: alone, one model for all, and the clusters."""
    methods = {
        "each alone": Local(local=LOCAL),
        "one model": FedAvg(local=LOCAL),
        "SR-FCA": SRFCA(local=LOCAL),
    }
    accuracies: dict[str, list[float]] = {name: [] for name in methods}
    for seed in SEEDS:
        federation = Simulation(sensors(seed), models.mlp(2, 32, 4))
        for name, method in methods.items():
            scores = method.fit(federation, seed).scores(federation)
            accuracies[name].append(100 * float(scores.accuracy.mean()))
    figure, axis = plt.subplots(figsize=(5, 3))
    colors = (COLORS["local"], COLORS["global"], COLORS["sr-fca"])
    for position, (values, color) in enumerate(zip(accuracies.values(), colors, strict=True)):
        axis.bar(position, np.mean(values), color=color, width=0.6)
        axis.plot([position] * len(values), values, ".", color="black", alpha=0.6)
        axis.text(position, 3, f"{np.mean(values):.1f}", ha="center", fontsize=11)
    axis.set_xticks(range(len(methods)), list(methods))
    axis.set_ylim(0, 100)
    axis.set_title("Test accuracy, %: mean and 5 seeds", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def off_diagonal(result: Result) -> np.ndarray:
    """Return the distances between local models, NaN on the diagonal."""
    distances = np.array(result.history[0].distances)
    np.fill_diagonal(distances, np.nan)
    return distances


def around_corners(distances: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Place the clients of each group by their distances, and the groups apart from each other.

    On one scale the groups would be dots: they are forty times as far apart as their clients.
    """
    places = np.zeros((len(truth), 2))
    for group in range(ANGLES):
        members = np.flatnonzero(truth == group)
        inside = plane(distances[np.ix_(members, members)])
        angle = np.pi / 2 + 2 * np.pi * group / ANGLES
        corner = 1.5 * np.array([np.cos(angle), np.sin(angle)])
        places[members] = corner + inside / np.abs(inside).max()
    return places


def plane(distances: np.ndarray) -> np.ndarray:
    """Place clients in a plane such that their distances are kept: classical scaling."""
    size = len(distances)
    center = np.eye(size) - 1 / size
    values, vectors = np.linalg.eigh(-center @ distances**2 @ center / 2)
    return vectors[:, -2:] * np.sqrt(values[-2:])


def save(figure: plt.Figure, path: Path) -> None:
    """Write a figure."""
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


FIGURES = {"rotated_digits": rotated_digits, "pictures": pictures}

if __name__ == "__main__":
    mpl.use("agg")
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=FIGURES, action="append")
    for name in parser.parse_args().only or FIGURES:
        FIGURES[name](Path(__file__).parent / "figures")
