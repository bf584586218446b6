"""Draw the figures of the docs.

pip install 'srfca[figures]' && python docs/make_figures.py
"""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from srfca.experiments import config, runner

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


if __name__ == "__main__":
    mpl.use("agg")
    rotated_digits(Path(__file__).parent / "figures")
