"""The answer of a run for a person: a table of its clusters, and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from srfca.analysis import Analysis, Fairness, Gain
from srfca.analysis.gains import fairness, mean_gain
from srfca.analysis.names import percent, short_list
from srfca.analysis.tables import groups
from srfca.clustering.partition import Indices
from srfca.report.summary import Table

MOST_CLUSTERS = 20
"""Clusters that a table shows."""
_NAMES = 4
"""Members that a line of the table names."""
NOT_KEPT = "Use --out DIR to keep the models and clusters.csv (one line per client)."
"""What a command says that keeps nothing."""
_DATA = {"validation": "held-out", "test": "test", "train": "training"}


def clusters_table(analysis: Analysis) -> Table | None:
    """Make a table of the clusters; None unless there are at least two.

    Columns that do not apply to any cluster are left out, and so are clusters beyond
    ``MOST_CLUSTERS``; the last line says how many.
    """
    if analysis.verdict != "clusters":
        return None
    lines = analysis.clusters()
    gains = cluster_gains(analysis)
    columns = {
        "clients": [str(count) for count in lines["clients"]],
        "members": [short_list(names, _NAMES) for names in lines["members"]],
        _score_title(analysis): _scores(analysis),
        gain_title(analysis, "one model"): [gain_text(over) for over, _ in gains],
        gain_title(analysis, "alone"): [gain_text(over) for _, over in gains],
        "confidence\n(lowest)": [
            "-" if mean is None else f"{percent(mean)} ({percent(lowest)})"
            for mean, lowest in zip(lines["confidence"], lines["lowest_confidence"], strict=True)
        ],
        "stability": [_number(value, "{:.2f}") for value in lines["stability"]],
    }
    shown = {title: cells for title, cells in columns.items() if set(cells) != {"-"}}
    names = [str(name) for name in lines["cluster"]]
    cells = [list(line) for line in zip(*shown.values(), strict=True)]
    if len(names) > MOST_CLUSTERS:
        left_out = len(names) - MOST_CLUSTERS
        names = [*names[:MOST_CLUSTERS], f"{left_out} more"]
        cells = [*cells[:MOST_CLUSTERS], ["..."] * len(shown)]
    unmarked = [[False] * len(shown) for _ in names]
    return Table("Clusters", list(shown), names, cells, unmarked, "cluster", ["members"])


def fairness_table(analysis: Analysis) -> Table | None:
    """Make a table of how even clients' scores are, beside one model and training alone.

    Returns:
        None without a reference.
    """
    reference = analysis.reference
    if reference is None:
        return None
    rows = {
        analysis.method: fairness(reference.answer),
        "one model for all": None if reference.together is None else fairness(reference.together),
        "every client alone": None if reference.alone is None else fairness(reference.alone),
    }
    filled = {name: part for name, part in rows.items() if part is not None}
    data = _DATA[reference.split]
    if analysis.scores.accuracy is not None:
        columns = [f"{data}\naccuracy %", "standard\ndeviation", "worst\ntenth %", "Jain's\nindex"]
    else:
        columns = [f"{data}\nloss", "standard\ndeviation", "worst\ntenth"]
    cells = [_fairness_cells(part) for part in filled.values()]
    unmarked = [[False] * len(columns) for _ in cells]
    return Table("Over the clients", columns, list(filled), cells, unmarked, head="model")


def difference_lines(analysis: Analysis) -> list[str]:
    """Return lines about what differs between the clusters; none if it was not asked for."""
    if analysis.differences is None:
        return []
    words = {part.cluster: part.words for part in analysis.differences.by_cluster}
    if len(set(words.values())) == 1 and len(words) > 1:
        lines = [f"every cluster: {next(iter(words.values()))}"]
    else:
        lines = [f"cluster {cluster}: {text}" for cluster, text in words.items()]
        if len(lines) > MOST_CLUSTERS:
            left_out = len(lines) - MOST_CLUSTERS
            lines = [*lines[:MOST_CLUSTERS], f"... and {left_out} more clusters"]
    layers = analysis.differences.layers[:3]
    if len(analysis.differences.layers) > 1:
        listed = ", ".join(f"{layer.name} ({layer.difference:.2f})" for layer in layers)
        lines.append(f"layers whose parameters differ most, relative to their training: {listed}")
    return lines


def hints(analysis: Analysis, kept: bool) -> list[str]:
    """Return what a person could do to learn more.

    Args:
        analysis: The answer.
        kept: Whether the run is saved.
    """
    reference, lines = analysis.reference, []
    if analysis.verdict == "clusters" and (reference is None or reference.together is None):
        lines.append(
            "Use --reference to compare with one model for all, and with every client alone."
        )
    return lines if kept else [*lines, NOT_KEPT]


def cluster_gains(analysis: Analysis) -> list[tuple[Gain | None, Gain | None]]:
    """Return the gains over one model and over training alone, for each of ``groups``."""
    return [_gains(analysis, clients) for _, clients in groups(analysis)]


def _gains(analysis: Analysis, clients: Indices) -> tuple[Gain | None, Gain | None]:
    """Return the gains of some clients."""
    reference = analysis.reference
    if reference is None:
        return None, None
    over_global, over_alone = (
        None if other is None else mean_gain(reference.answer, other, clients)
        for other in (reference.together, reference.alone)
    )
    return over_global, over_alone


def gain_title(analysis: Analysis, other: str) -> str:
    """Return the title of a column of gains, with the data they are on if scores are on others."""
    split = None if analysis.reference is None else analysis.reference.split
    data = "" if split in (None, analysis.split) else f", {_DATA[str(split)]}"
    if analysis.scores.accuracy is not None:
        return f"points over\n{other}{data}"
    return f"loss against\n{other}{data}"


def _score_title(analysis: Analysis) -> str:
    kind = "loss" if analysis.scores.accuracy is None else "accuracy %"
    return f"{_DATA[analysis.split]}\n{kind}"


def _scores(analysis: Analysis) -> list[str]:
    lines = analysis.clusters()
    if analysis.scores.accuracy is None:
        return [_number(value, "{:.3g}") for value in lines["loss"]]
    return [
        _number(None if value is None else 100 * value, "{:.1f}") for value in lines["accuracy"]
    ]


def _fairness_cells(part: Fairness) -> Sequence[str]:
    if part.jain is None:
        return [f"{value:.3g}" for value in (part.mean, part.standard_deviation, part.worst_tenth)]
    accuracies = (part.mean, part.standard_deviation, part.worst_tenth)
    return [*(f"{100 * value:.1f}" for value in accuracies), f"{part.jain:.3f}"]


def gain_text(gain: Gain | None) -> str:
    """Return a gain as text, "-" if it is unknown."""
    return "-" if gain is None else gain.text()


def _number(value: float | None, pattern: str) -> str:
    return "-" if value is None else pattern.format(value)
