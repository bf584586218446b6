"""Charts as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from srfca import InputError
from srfca.report.charts.export import write_figure
from srfca.report.charts.names import figures
from tests.report.made_up_views import made_up_view

BEGINNINGS = {".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF"}


@pytest.mark.parametrize("ending", BEGINNINGS)
def test_charts_are_written_in_the_format_of_the_name(ending: str, tmp_path: Path) -> None:
    made = figures(made_up_view())["map"]
    path = write_figure(made, tmp_path / f"map{ending}")
    assert path.read_bytes().startswith(BEGINNINGS[ending])


def test_every_chart_can_be_drawn(tmp_path: Path) -> None:
    for made in figures(made_up_view()).values():
        text = write_figure(made, tmp_path / "chart.svg", width=300).read_text()
        assert "NaN" not in text, made.name
        assert text.count("<path") + text.count("<rect") > 3, made.name


def test_other_formats_are_an_error_that_lists_those_that_exist(tmp_path: Path) -> None:
    made = figures(made_up_view())["map"]
    with pytest.raises(InputError, match=r"must end with \.png, \.svg, \.pdf"):
        write_figure(made, tmp_path / "map.gif")
