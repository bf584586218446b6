"""Charts of runs: for one cluster or fifty, ten clients or ten thousand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
import pytest
import torch

from srfca import InputError
from srfca.report.charts.client_map import client_map, principal, scaled
from srfca.report.charts.distances import MATRIX_CLIENTS, distance_matrix
from srfca.report.charts.histogram import OTHER, SAME, distance_histogram
from srfca.report.charts.moves import ALONE, UNCLUSTERED, client_moves
from srfca.report.charts.names import CHARTS, figure, figures
from srfca.report.charts.strips import STRIP_CLIENTS, strips
from tests.report.made_up_views import made_up_view

VIEWS: dict[str, dict[str, Any]] = {
    "few": {},
    "one cluster": {"num_clusters": 1, "num_clients": 9},
    "fifty clusters": {"num_clusters": 50, "num_clients": 400},
    "many clients": {"num_clients": 10_000, "num_clusters": 5, "distances": False, "alone": 9},
    "regression": {"accuracy": False, "truth": False},
    "outliers": {"alone": 3, "unclustered": 2},
    "nothing known": {"distances": False, "truth": False, "analyzed": False},
    "two clients": {"num_clients": 2, "num_clusters": 1},
    "everyone alone": {"num_clusters": 0, "num_clients": 12, "alone": 12},
}


def datasets(spec: dict[str, Any]) -> list[list[Any]]:
    """All data of a specification."""
    return list(spec["datasets"].values())


@pytest.mark.parametrize("name", VIEWS)
def test_every_chart_of_every_run_is_valid_and_small(name: str) -> None:
    drawn = figures(made_up_view(**VIEWS[name]))
    assert drawn
    for made in drawn.values():
        spec = made.sized().to_dict()  # validates
        text = json.dumps(spec, allow_nan=False)
        assert len(text) < 350_000
        assert made.title in spec["description"]
        assert made.caption.endswith(".")
        for data in datasets(spec):
            for line in data[:1]:
                assert not isinstance(line, dict) or all(f is not None for f in line.values())
        if made.fields:
            found = [d for d in datasets(spec) if d and isinstance(d[0], dict)]
            assert any(set(made.fields) <= set(data[0]) for data in found), made.name


def test_a_chart_that_a_run_has_not_is_an_error_that_names_those_it_has() -> None:
    view = made_up_view(distances=False)
    with pytest.raises(InputError, match=r"nothing to draw in 'map'; it has: .*scores"):
        figure(view, "map")
    with pytest.raises(InputError, match="unknown chart 'mapp': did you mean 'map'"):
        figure(view, "mapp")  # type: ignore[arg-type]
    assert figure(made_up_view(), "map").name == "map"
    assert set(CHARTS) - set(figures(made_up_view())) == {"profiles", "merge"}


def test_the_matrix_is_ordered_by_cluster_and_sampled() -> None:
    view = made_up_view(num_clients=300, num_clusters=3)
    made = distance_matrix(view)
    assert made is not None
    numbers = next(d for d in datasets(made.chart.to_dict()) if not isinstance(d[0], dict))
    count = int(len(numbers) ** 0.5)
    assert count * count == len(numbers)
    assert count <= MATRIX_CLIENTS + 3
    matrix = np.array(numbers).reshape(count, count)
    third = count // 3
    assert matrix[1:third, 0].max() < 2 < matrix[third:, 0].min(), "blocks on the diagonal"
    assert (np.diag(matrix) == -1).all(), "a client's distance to itself is not shown"
    assert f"{count} of the 300 clients" in made.caption


def test_the_histogram_separates_pairs_and_shows_the_threshold_with_its_margin() -> None:
    made = distance_histogram(made_up_view())
    assert made is not None
    data = datasets(made.chart.to_dict())
    bars = next(d for d in data if "pairs" in d[0])
    for kind in (SAME, OTHER):
        assert sum(bar["share"] for bar in bars if bar["pairs"] == kind) == pytest.approx(
            1, abs=0.01
        )
    assert max(bar["to"] for bar in bars if bar["pairs"] == SAME) < 2
    assert [{"low": 1.5, "high": 4.0}] in data
    assert any("λ = 2.5" in str(d) for d in data)
    one = distance_histogram(made_up_view(num_clusters=1))
    assert one is not None, "no pair is in different clusters"


def test_without_a_move_there_is_no_chart_of_moves() -> None:
    view = made_up_view()
    still = made_up_view(history=view.history[2:])
    assert client_moves(still) is None
    moved = client_moves(view)
    assert moved is not None
    flows = next(d for d in datasets(moved.chart.to_dict()) if "flow" in d[0])
    clients = {line["flow"]: line["clients"] for line in flows}
    first = [flow for flow in clients if flow.startswith("ONE_SHOT")]
    assert sum(clients[flow] for flow in first) == view.num_clients


def test_moves_lump_clients_that_are_alone_or_in_no_cluster() -> None:
    made = client_moves(made_up_view(alone=3, unclustered=2))
    assert made is not None
    bars = next(d for d in datasets(made.chart.to_dict()) if "named" in d[0])
    last = {bar["cluster"]: bar["clients"] for bar in bars if bar["last"]}
    assert last["alone"] == 3
    assert last["unclustered"] == 2
    assert ALONE != UNCLUSTERED


def test_clients_of_a_cluster_are_near_on_the_map() -> None:
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(0, 0.1, (5, 2)), rng.normal(3, 0.1, (5, 2))])
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    found = scaled(distances)
    assert found is not None
    places, explained = found
    assert explained > 0.99
    again = np.linalg.norm(places[:, None] - places, axis=2)
    assert np.allclose(again, distances, atol=1e-6), "two dimensions keep all distances"
    unknown = distances.copy()
    unknown[0, 1] = unknown[1, 0] = np.nan
    assert scaled(unknown) is not None
    assert scaled(np.zeros((4, 4))) is None
    by_models = principal(np.concatenate([points, np.zeros((10, 3))], axis=1))
    assert by_models is not None
    assert principal(np.ones((4, 3))) is None


def test_without_distances_the_map_is_of_individual_models() -> None:
    rows = torch.randn(24, 6, generator=torch.Generator().manual_seed(0))
    assert client_map(made_up_view(distances=False)) is None
    made = client_map(made_up_view(distances=False, individual_models=rows))
    assert made is not None
    assert "their models say" in made.caption


def test_without_distances_and_models_the_map_is_of_losses() -> None:
    view = made_up_view(distances=False)
    assert view.analysis is not None
    assert view.analysis.structure is not None
    places = np.random.default_rng(0).normal(size=(view.num_clients, 2))
    places[3] = np.nan  # did not reply
    structure = replace(view.analysis.structure, places=places, explained=0.7)
    made = client_map(replace(view, analysis=replace(view.analysis, structure=structure)))
    assert made is not None
    assert "The two axes keep 70% of what the losses of the clusters' models say" in made.caption
    points = max(datasets(made.chart.to_dict()), key=len)
    assert len(points) == view.num_clients - 1


def test_many_clients_are_sampled_and_the_caption_says_so() -> None:
    made = figures(made_up_view(num_clients=10_000, num_clusters=4, distances=False))
    points = max(datasets(made["scores"].chart.to_dict()), key=len)
    assert len(points) <= STRIP_CLIENTS + 4
    assert "of the 10,000 clients are shown" in made["scores"].caption


def test_distances_of_recluster_and_merge_have_histograms() -> None:
    view = made_up_view()
    notes = {"between_clusters": {"threshold": 1.0, "distances": [0.5, 2.0, 3.0]}}
    plain = next(stage for stage in view.history if stage.name == "RECLUSTER 1")
    merge = replace(plain, name="MERGE 1", notes=notes)
    made = figures(replace(view, history=(*view.history, merge)))
    assert "in RECLUSTER 1" in made["recluster"].caption
    assert "in MERGE 1" in made["merge"].caption
    for name in ("recluster", "merge"):
        shown = max(datasets(made[name].sized().to_dict()), key=len)
        assert len({line["pairs"] for line in shown}) == 2


def test_curves_have_the_color_of_what_became_of_a_cluster() -> None:
    view = made_up_view()
    made = figures(view)["accuracy"]
    lines = next(d for d in datasets(made.chart.to_dict()) if "series" in d[0])
    assert {line["cluster"] for line in lines} == {"0", "1", "2"}
    assert max(line["steps"] for line in lines) == 200
    assert isinstance(made.chart, alt.LayerChart)


def test_axes_of_shares_end_at_all_of_it() -> None:
    """There is room beside points at 100 %, but no tick at 105 %."""
    vl_convert = pytest.importorskip("vl_convert", reason="needs srfca[report]")
    view = made_up_view()
    drawn = strips(view, np.linspace(0.8, 1.0, view.num_clients), "share", ".1%")
    assert drawn is not None
    spec = drawn.chart.properties(width=560, height=drawn.height).to_dict()
    svg = vl_convert.vegalite_to_svg(spec)
    labels = [int(number) for number in re.findall(r">(-?\d+)%</text>", svg)]
    assert len(labels) > 2
    assert max(labels) == 100
