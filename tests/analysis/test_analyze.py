from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from srfca import SRFCA, ClientData, InputError, LocalTraining, Result, Simulation
from srfca.analysis import Analysis, analyze
from srfca.federation import DataMoments
from srfca.methods import IFCA
from srfca.models import linear
from srfca.testing import ReferenceFederation
from tests.analysis import made_up
from tests.methods.helpers import DIGITS, DropByNumber, digits


def regressions(labels: list[int], slopes: torch.Tensor, samples: int = 12) -> Simulation:
    """Return clients whose slopes ``[k, 2]`` are those of their clusters."""
    generator = torch.Generator().manual_seed(0)
    clients = []
    for label in labels:
        x = torch.randn(samples, 2, generator=generator)
        noise = 0.1 * torch.randn(samples, generator=generator)
        clients.append((x, x @ slopes[label] + noise))
    return Simulation(ClientData.from_arrays(clients), linear(2))


def rows(slopes: torch.Tensor) -> torch.Tensor:
    """Return linear models with these slopes, and no intercept."""
    return torch.cat([slopes, torch.zeros(len(slopes), 1)], dim=1)


def test_what_is_asked_of_the_clients(result: Result, federation: Simulation) -> None:
    asked = DropByNumber(federation)
    analyze(result, asked, differences=False)
    assert not any(isinstance(request, DataMoments) for request in asked.requests)
    names = [request.name for request in asked.requests]
    assert names == ["scores", "bootstraplosses"]
    analyze(result, asked)
    assert any(isinstance(request, DataMoments) for request in asked.requests)


def test_layers_have_the_names_and_types_of_the_module(
    result: Result, federation: Simulation
) -> None:
    layers = analyze(result, federation).differences.layers  # type: ignore[union-attr]
    assert result.architecture is not None
    titles = {f"{name} (Linear)" for name in federation.layers}
    assert {layer.name for layer in layers} == titles
    unknown = replace(result.architecture, factory=None, model=None)
    assert unknown.layer_titles() == {}


def test_one_cluster_has_a_decision_and_no_confidence() -> None:
    federation = digits(num_clients=12, rotations=1)
    result = SRFCA(local=DIGITS).fit(federation)
    analysis = analyze(result, federation)
    assert result.partition.num_clusters == 1
    assert (analysis.verdict, analysis.confidence, analysis.differences) == ("together", None, None)
    assert analysis.structure is not None
    assert np.isfinite(analysis.structure.outlier_score).all()
    assert analysis.decision is not None
    assert "No groups found: " in analysis.sentence()
    assert set(analysis.table()["confidence"]) == {None}


def test_everyone_alone() -> None:
    slopes = torch.randn(6, 2, generator=torch.Generator().manual_seed(1))
    federation = regressions(list(range(6)), slopes)
    analysis = analyze(made_up.result(federation, range(6), rows(slopes)), federation)
    assert analysis.verdict == "alone"
    assert (analysis.confidence, analysis.structure, analysis.differences) == (None, None, None)
    assert analysis.clusters()["cluster"] == ["alone"]


def test_clusters_and_clients_alone() -> None:
    slopes = torch.tensor([[3.0, 0.0], [0.0, 3.0], [-3.0, -3.0]])
    labels = [0, 0, 0, 1, 1, 1, 2]
    federation = regressions(labels, slopes)
    analysis = analyze(made_up.result(federation, labels, rows(slopes)), federation)
    assert analysis.verdict == "clusters"
    assert analysis.confidence is not None
    assert analysis.confidence.clusters.tolist() == [0, 1]
    assert np.isnan(analysis.confidence.confidence).tolist() == [False] * 6 + [True]
    assert analysis.structure is not None
    assert analysis.structure.source == "losses"
    assert analysis.structure.outlier_score[6] > 0.9
    assert analysis.clusters()["cluster"] == [0, 1, "alone"]
    assert analysis.differences is not None
    assert [part.cluster for part in analysis.differences.by_cluster] == [0, 1]


def test_an_unclustered_client_has_no_score() -> None:
    slopes = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    federation = regressions([0, 0, 1, 1, 0], slopes)
    analysis = analyze(made_up.result(federation, [0, 0, 1, 1, -1], rows(slopes)), federation)
    table = analysis.table()
    assert (table["placed"][4], table["loss"][4], table["confidence"][4]) == (
        "unclustered", None, None,
    )  # fmt: skip
    assert table["next_cluster"][4] == 0


def test_fifty_clusters_are_placed_surely() -> None:
    """Many clusters do not make a clear placement doubtful."""
    slopes = 5 * torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    labels = [number % 50 for number in range(200)]
    federation = regressions(labels, slopes, samples=40)
    analysis = analyze(made_up.result(federation, labels, rows(slopes)), federation)
    assert analysis.confidence is not None
    assert np.median(analysis.confidence.confidence) > 0.9
    assert analysis.confidence.memberships.shape == (200, 50)
    assert len(analysis.clusters()["cluster"]) == 50


def test_without_held_out_data_there_is_no_confidence() -> None:
    slopes = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    data = regressions([0, 0, 1, 1], slopes).data
    federation = Simulation(data, linear(2), validation=0.0)
    analysis = analyze(made_up.result(federation, [0, 0, 1, 1], rows(slopes)), federation)
    assert (analysis.confidence, analysis.structure) == (None, None)
    assert analysis.split == "train"
    assert "unavailable without held-out data" in analysis.sentence()


def test_missing_replies_leave_gaps(result: Result, federation: Simulation) -> None:
    lossy = DropByNumber(federation, {0: [2], 1: [5]})
    analysis = analyze(result, lossy, differences=False)
    table = analysis.table()
    assert table["loss"][2] is None
    assert table["confidence"][5] is None
    assert None not in table["confidence"][6:]


def test_any_clustering_method_is_analyzed(federation: Simulation) -> None:
    local = LocalTraining(steps=60, batch_size=10, lr=0.5)
    analysis = analyze(IFCA(k=2, local=local).fit(federation), federation)
    assert analysis.reference is None
    assert analysis.decision is None
    if analysis.verdict == "clusters":
        assert analysis.structure is not None
        assert analysis.structure.source == "losses"


def test_the_reference_federation_gives_the_same(result: Result, analysis: Analysis) -> None:
    made = digits(num_clients=24, rotations=2, validation=0.2)
    reference = ReferenceFederation(made.data, made._model, validation=0.2, seed=0)
    expected = analyze(result, reference, input_shape=(8, 8))
    assert analysis.confidence is not None
    assert expected.confidence is not None
    for name in ("confidence", "margin", "memberships"):
        ours, expected_values = (getattr(part.confidence, name) for part in (analysis, expected))
        np.testing.assert_allclose(ours, expected_values, atol=1e-3)
    assert analysis.clusters()["differs"] == expected.clusters()["differs"]


def test_wrong_input_is_refused(result: Result, federation: Simulation) -> None:
    with pytest.raises(InputError, match="the federation has 12 clients that are not the 24"):
        analyze(result, digits(num_clients=12))
    with pytest.raises(InputError, match="replicates must be at least 1, not 0"):
        analyze(result, federation, replicates=0)
    with pytest.raises(InputError, match="there are 64 features, but 1 names for them"):
        analyze(result, federation, feature_names=["a"])


def test_the_same_seed_gives_the_same_answer(result: Result, federation: Simulation) -> None:
    labels = result.labels.copy()
    labels[:6] = 1 - labels[:6]
    first, again = (
        analyze(replace(result, labels=labels), federation, differences=False) for _ in range(2)
    )
    assert first.table() == again.table()
    assert first.clusters() == again.clusters()
