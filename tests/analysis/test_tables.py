from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from srfca import InputError
from srfca.analysis import Analysis, Reference
from srfca.analysis.names import percent, short_list
from tests.analysis import made_up

COLUMNS = [
    "client", "cluster", "placed", "confidence", "margin", "standard_errors", "next_cluster",
    "stays", "silhouette", "outlier_score", "scored_on", "loss", "accuracy", "compared_on",
    "compared_loss", "compared_accuracy", "global_loss", "global_accuracy", "alone_loss",
    "alone_accuracy",
]  # fmt: skip


def test_a_line_for_each_client(analysis: Analysis) -> None:
    table = analysis.table()
    assert list(table) == COLUMNS
    assert {len(column) for column in table.values()} == {24}
    assert table["client"] == list(analysis.client_ids)
    assert table["cluster"] == analysis.labels.tolist()
    assert set(table["placed"]) == {"cluster"}
    assert set(table["scored_on"]) == {"test"}
    assert set(table["compared_on"]) == {"validation"}
    assert table["global_loss"] == [None] * 24
    assert None not in table["alone_accuracy"]
    assert all(0.5 < value <= 1 for value in table["confidence"])


def test_csv_has_a_line_for_each_client(analysis: Analysis, tmp_path: Path) -> None:
    path = analysis.to_csv(tmp_path / "clusters.csv")
    with path.open() as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == COLUMNS
    assert len(lines) == 24
    first = analysis.table()
    assert lines[3]["client"] == analysis.client_ids[3]
    assert float(lines[3]["confidence"]) == pytest.approx(first["confidence"][3], rel=1e-4)
    assert lines[3]["global_loss"] == ""
    with pytest.raises(InputError, match="cannot write"):
        analysis.to_csv(tmp_path / "nowhere" / "clusters.csv")


def test_a_line_for_each_cluster(analysis: Analysis) -> None:
    table = analysis.clusters()
    assert table["cluster"] == [0, 1]
    assert table["clients"] == [12, 12]
    assert table["members"][0] == [analysis.client_ids[c] for c in range(0, 24, 2)]
    assert all(value > 0.9 for value in table["confidence"])
    lowest = zip(table["lowest_confidence"], table["confidence"], strict=True)
    assert all(low <= mean for low, mean in lowest)
    assert table["doubtful"] == [0, 0]
    assert all(value > 0.9 for value in table["stability"])
    assert all(isinstance(words, str) for words in table["differs"])


def test_clients_alone_are_one_line() -> None:
    part = made_up.analysis([0, 0, 1, 2, 1, -1])
    table = part.clusters()
    assert table["cluster"] == [0, 1, "alone", "unclustered"]
    assert table["clients"] == [2, 2, 1, 1]
    assert table["members"][2:] == [["d"], ["f"]]
    assert part.table()["placed"] == [
        "cluster", "cluster", "cluster", "alone", "cluster", "unclustered",
    ]  # fmt: skip
    assert part.table()["cluster"] == [0, 0, 1, 2, 1, None]


def test_everyone_alone_is_one_line() -> None:
    table = made_up.analysis(range(102)).clusters()
    assert (table["cluster"], table["clients"]) == (["alone"], [102])
    assert table["confidence"] == [None]


def test_a_method_without_clusters_is_one_line() -> None:
    part = made_up.analysis([0, 0, 0], clustered=False)
    assert part.clusters()["cluster"] == ["everyone"]
    assert part.table()["placed"] == ["-", "-", "-"]


def test_gains_by_cluster() -> None:
    answer, together = made_up.scores([0.9, 0.5, 0.8, 0.8]), made_up.scores([0.8, 0.6, 0.6, 0.6])
    part = made_up.analysis([0, 0, 1, 1]).with_reference(Reference("test", answer, together, None))
    table = part.clusters()
    np.testing.assert_allclose(table["gain_over_global"], [0.0, 0.2], atol=1e-12)
    assert table["gain_over_alone"] == [None, None]
    assert table["losing"] == [1, 0]
    assert part.table()["global_accuracy"] == [0.8, 0.6, 0.6, 0.6]


def test_lists_of_names_are_cut() -> None:
    names = [f"n{number}" for number in range(35)]
    assert short_list(names, 4) == "n0, n1, n2, n3 and 31 more"
    assert short_list(names[:4], 4) == "n0, n1, n2, n3"
    assert percent(0.5) == "50%"
