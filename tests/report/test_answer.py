"""The answer as tables and lines."""

from __future__ import annotations

import numpy as np

from srfca.analysis import (
    ClusterDifference,
    Confidence,
    Differences,
    LayerDifference,
    Reference,
)
from srfca.report.answer import NOT_KEPT, clusters_table, difference_lines, fairness_table, hints
from tests.analysis import made_up


def confidence(m: int, clusters: int) -> Confidence:
    nothing = np.full(m, np.nan)
    return Confidence(
        np.arange(clusters), np.linspace(0.5, 1, m), nothing, nothing, np.zeros(m, np.int64),
        nothing, np.full((m, clusters), 1 / clusters), np.full(clusters, 0.875),
    )  # fmt: skip


def described(cluster: int, words: str) -> ClusterDifference:
    return ClusterDifference(cluster, 9, (), (), (), (), (), None, words)


def test_a_table_of_clusters() -> None:
    part = made_up.analysis(
        [0, 0, 1, 1, 2], confidence=confidence(5, 2),
        reference=Reference("test", made_up.scores([0.9] * 5), made_up.scores([0.8] * 5), None),
    )  # fmt: skip
    table = clusters_table(part)
    assert table is not None
    assert list(table.columns) == [
        "clients", "members", "test\naccuracy %", "points over\none model",
        "confidence\n(lowest)", "stability",
    ]  # fmt: skip
    assert list(table.names) == ["0", "1", "alone"]
    assert table.cells[0] == ["2", "a, b", "90.0", "+10.0", "56% (50%)", "0.88"]
    assert table.cells[2][0:2] == ["1", "e"]
    assert table.cells[2][4:] == ["-", "-"]
    assert table.texts == ["members"]


def test_columns_without_numbers_are_left_out() -> None:
    table = clusters_table(made_up.analysis([0, 0, 1, 1]))
    assert table is not None
    assert list(table.columns) == ["clients", "members", "test\naccuracy %"]


def test_losses_and_other_splits_are_named() -> None:
    losses = made_up.scores(None, [1.0] * 4)
    reference = Reference("validation", losses, made_up.scores(None, [2.0] * 4), losses)
    table = clusters_table(made_up.analysis([0, 0, 1, 1], scores=losses, reference=reference))
    assert table is not None
    assert list(table.columns)[2:] == [
        "test\nloss", "loss against\none model, held-out", "loss against\nalone, held-out",
    ]  # fmt: skip
    assert table.cells[0][2:] == ["1", "-50%", "0%"]


def test_many_clusters_and_members_are_cut() -> None:
    table = clusters_table(made_up.analysis([number % 50 for number in range(10_000)]))
    assert table is not None
    assert len(table.names) == len(table.cells) == 21
    assert table.names[-1] == "30 more"
    assert table.cells[0][1] == "client 0, client 50, client 100, client 150 and 196 more"


def test_no_table_of_a_single_cluster_or_of_clients_alone() -> None:
    assert clusters_table(made_up.analysis([0, 0, 0])) is None
    assert clusters_table(made_up.analysis(range(102))) is None
    assert clusters_table(made_up.analysis([0, 0], clustered=False)) is None


def test_fairness_beside_the_reference() -> None:
    answer, alone = made_up.scores([0.9, 0.7]), made_up.scores([0.5, 0.7])
    part = made_up.analysis([0, 0], reference=Reference("test", answer, None, alone))
    table = fairness_table(part)
    assert table is not None
    assert list(table.names) == ["SR-FCA", "every client alone"]
    assert table.cells[0] == ["80.0", "10.0", "70.0", "0.985"]
    assert fairness_table(made_up.analysis([0, 0])) is None
    losses = made_up.scores(None, [1.0, 3.0])
    part = made_up.analysis([0, 0], scores=losses, reference=Reference("test", losses, None, None))
    table = fairness_table(part)
    assert table is not None
    assert table.cells == [["2", "1", "3"]]


def test_what_differs() -> None:
    layers = (LayerDifference("head", 1.5), LayerDifference("body", 0.5))
    part = made_up.analysis(
        [0, 0, 1, 1], differences=Differences((described(0, "x"), described(1, "y")), layers)
    )
    assert difference_lines(part) == [
        "cluster 0: x",
        "cluster 1: y",
        "layers whose parameters differ most, relative to their training: head (1.50), body (0.50)",
    ]
    same = made_up.analysis(
        [0, 0, 1, 1], differences=Differences((described(0, "x"), described(1, "x")))
    )
    assert difference_lines(same) == ["every cluster: x"]
    assert difference_lines(made_up.analysis([0, 0, 1, 1])) == []
    many = Differences(tuple(described(c, str(c)) for c in range(25)))
    lines = difference_lines(made_up.analysis([0, 0, 1, 1], differences=many))
    assert lines[-1] == "... and 5 more clusters"
    assert len(lines) == 21


def test_a_hint_where_nothing_is_known_of_one_model() -> None:
    scores = made_up.scores([0.5] * 4)
    assert len(hints(made_up.analysis([0, 0, 1, 1]), kept=True)) == 1
    complete = Reference("test", scores, scores, None)
    assert not hints(made_up.analysis([0, 0, 1, 1], reference=complete), kept=True)
    assert not hints(made_up.analysis([0, 0, 0, 0]), kept=True)
    assert hints(made_up.analysis([0, 0, 0, 0]), kept=False) == [NOT_KEPT]
