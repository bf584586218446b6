"""What notebooks show of results, comparisons and partitions."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from srfca import SRFCA, InputError, LocalTraining, Partition, Result, Simulation, data, models
from srfca.experiments.compare import Comparison
from srfca.report.notebook import MAX_CLUSTERS
from tests.report.made_up import RUNS
from tests.report.made_up_views import made_up_result


class Tags(HTMLParser):
    """Checks that every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def shown(thing: Any) -> str:
    html: str = thing._repr_html_()
    parser = Tags()
    parser.feed(html)
    assert parser.open == []
    assert "<script" not in html
    return html


@pytest.fixture(scope="module")
def run() -> tuple[Result, Simulation]:
    federation = Simulation(
        data.rotated_digits(num_clients=12, rotations=2), models.mlp(64, 16, 10)
    )
    local = LocalTraining(steps=40, batch_size=10, lr=0.5)
    return SRFCA(local=local).fit(federation), federation


def test_a_partition_shows_its_clusters() -> None:
    html = shown(Partition([0, 0, 1, 1, 1, 2, -1]))
    assert "2 clusters of 2, 3 clients and 1 client alone and 1 client unclustered" in html
    assert html.count("border-radius") == 2
    many = shown(Partition([*range(30)] * 2))
    assert f"and {30 - MAX_CLUSTERS} more clusters" in many
    assert "no clients" in shown(Partition([]))


def test_a_result_shows_what_was_found() -> None:
    html = shown(made_up_result(names="<b>{}</b>"))
    assert "SR-FCA found 3 clusters" in html
    assert "RECLUSTER 1" in html
    assert "Threshold of ONE_SHOT" in html
    assert "<b>0</b>" not in html


def test_a_comparison_shows_its_tables() -> None:
    html = shown(Comparison(RUNS, [], 0, []))
    assert "80.00 ± 7.07" in html
    assert "Other &amp; 5% a_b" in html
    assert "No run succeeded" in shown(Comparison([], [], 0, []))


def test_a_result_draws_charts(run: tuple[Result, Simulation]) -> None:
    result, federation = run
    chart = result.plot("map")
    assert isinstance(chart, alt.LayerChart)
    assert chart.to_dict()["width"] == 560
    with pytest.raises(InputError, match="nothing to draw in 'confidence'"):
        result.plot("confidence")
    assert result.plot("confidence", federation).to_dict()["datasets"]
    with pytest.raises(InputError, match="unknown chart"):
        result.plot("nothing")  # type: ignore[arg-type]
    assert result.plot().to_dict() == chart.to_dict(), "the map"


def test_a_result_without_a_map_draws_another_chart() -> None:
    chart = made_up_result(distances=False).plot()
    assert "Which answer serves best" in chart.to_dict()["description"]


def test_a_result_has_a_table_of_its_clients(run: tuple[Result, Simulation]) -> None:
    result, federation = run
    table = result.table(federation)
    assert table["client"] == list(result.client_ids)
    assert table["cluster"] == result.labels.tolist()
    assert all(0 <= number <= 1 for number in table["confidence"])


def test_a_result_writes_a_report(run: tuple[Result, Simulation], tmp_path: Path) -> None:
    result, federation = run
    plain = result.report(tmp_path / "plain.html").read_text()
    assert "held-out accuracy" in plain
    full = result.report(str(tmp_path / "full.html"), federation).read_text()
    for text in ("test accuracy", "What differs", "true clusters", "Mean input of cluster 1"):
        assert text in full
        assert text not in plain or text == "test accuracy"
