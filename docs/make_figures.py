"""Draw the figures of the docs.

pip install 'srfca[report]' && python docs/make_figures.py
"""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from srfca.experiments import config, runner

SEEDS = range(5)
COLOURS = {"sr-fca": "#1b7f5c", "global": "#8a8f98", "local": "#c9ccd1"}
NAMES = {"sr-fca": "SR-FCA", "global": "Global", "local": "Local"}


def rotated_digits(folder: Path) -> None:
    """Distances as the clients come, the same by cluster, and test accuracy over seeds."""
    experiment = config.load("rotated-digits")
    accuracy: dict[str, list[float]] = {name: [] for name in NAMES}
    for seed in SEEDS:
        clients = runner.federation(experiment, seed)
        for method in NAMES:
            outcome = runner.run(experiment, method, clients, seed)
            accuracy[method].append(100 * outcome.row()["accuracy"])
            if method == "sr-fca" and seed == 0:
                result = outcome.result
    distances = np.array(result.history[0].distances)
    np.fill_diagonal(distances, np.nan)
    order = np.argsort(result.labels, kind="stable")

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), width_ratios=[1, 1, 1.1])
    shown = {
        "Distances of the clients' own models": distances,
        "The same, by the clusters found": distances[np.ix_(order, order)],
    }
    for axis, (title, matrix) in zip(axes, shown.items(), strict=False):
        axis.imshow(matrix, cmap="viridis_r")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("client")
        axis.set_xticks([])
        axis.set_yticks([])
    bars = axes[2]
    for place, (name, values) in enumerate(accuracy.items()):
        bars.bar(place, np.mean(values), color=COLOURS[name], width=0.65)
        bars.plot([place] * len(values), values, ".", color="black", alpha=0.6)
        bars.text(place, 51.5, f"{np.mean(values):.1f}", ha="center", fontsize=11)
    bars.set_xticks(range(3), NAMES.values())
    bars.set_ylim(50, 100)
    bars.set_title("Test accuracy, %: mean and 5 seeds", fontsize=10)
    bars.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(folder / "rotated-digits.png", dpi=130)


if __name__ == "__main__":
    mpl.use("agg")
    rotated_digits(Path(__file__).parent / "figures")
