from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from srfca import ClientData, InputError, Simulation
from srfca.analysis.describe_data import Names, describe_data, table_names
from srfca.analysis.difference_words import difference_words
from srfca.analysis.layers import layer_differences
from srfca.data.transforms import permute_labels
from srfca.models import linear, mlp
from srfca.testing import ReferenceFederation
from tests.methods.helpers import DropByNumber

RNG = np.random.default_rng(0)
LABELS = np.array([0, 0, 1, 1, 2])
"""Two clusters, and a client alone."""
CLUSTERS = np.array([0, 1])


def table(shift: float = 2.0, skew: bool = False, targets: bool = False) -> ClientData:
    """Return five clients; the second feature of the first cluster is shifted."""
    clients = {}
    for number, label in enumerate(LABELS.tolist()):
        x = RNG.normal(size=(200, 3)).astype(np.float32)
        x[:, 1] += shift * (label == 0)
        p = [0.7, 0.2, 0.1] if skew and label == 0 else [1 / 3] * 3
        y = RNG.normal(size=200) if targets else RNG.choice(3, size=200, p=p)
        clients[f"c{number}"] = (x, y.astype(np.float32) if targets else y)
    return ClientData.from_arrays(clients)


def test_a_shifted_feature_stands_out_by_name() -> None:
    clients = table()
    federation = Simulation(clients, linear(3, 3))
    names = Names(("age", "height", "weight"), ("red", "green", "blue"))
    first, second = describe_data(federation, LABELS, CLUSTERS, names)
    assert (first.cluster, first.samples, second.cluster) == (0, 400, 1)
    top = first.features[0]
    inside = torch.cat([clients.train.of(c)[0] for c in (0, 1)]).double()
    outside = torch.cat([clients.train.of(c)[0] for c in (2, 3, 4)]).double()
    deviation = ((inside[:, 1].var() + outside[:, 1].var()) / 2).sqrt()
    expected = float((inside[:, 1].mean() - outside[:, 1].mean()) / deviation)
    assert top.name == "height"
    assert top.difference == pytest.approx(expected, rel=0.01)
    assert top.mean == pytest.approx(float(inside[:, 1].mean()), abs=1e-5)
    assert top.others == pytest.approx(float(outside[:, 1].mean()), abs=1e-5)
    assert "height is higher: " in first.words
    assert "height is lower: " in second.words
    assert "age" not in first.words
    assert first.mean_input is not None
    np.testing.assert_allclose(first.mean_input, inside.mean(0), atol=1e-5)
    assert first.class_names == ("red", "green", "blue")


def test_label_skew_is_named() -> None:
    federation = Simulation(table(shift=0.0, skew=True), linear(3, 3))
    first, second = describe_data(federation, LABELS, CLUSTERS, Names())
    assert first.class_shares[0] == pytest.approx(0.7, abs=0.07)
    assert sum(first.class_shares) == pytest.approx(1.0)
    assert first.words.startswith("more of class 0 (")
    assert "less of class" in first.words
    assert "input" not in first.words
    assert "less of class 0" in second.words


def test_similar_data_is_reported_as_similar() -> None:
    federation = Simulation(table(shift=0.0), linear(3, 3))
    for described in describe_data(federation, LABELS, CLUSTERS, Names()):
        assert (
            described.words
            == "labels and inputs are alike on average; how they are related may differ"
        )


def test_swapped_labels_differ_within_their_classes() -> None:
    """Inputs and labels are alike, but class 0 of one cluster looks like class 1 of the other."""
    swap = permute_labels([1, 0, 2])
    clients = []
    for label in LABELS.tolist():
        y = RNG.integers(3, size=200)
        x = (np.eye(3)[y] * [2, 1, 1] + 0.3 * RNG.normal(size=(200, 3))).astype(np.float32)
        clients.append(swap(x, y) if label == 0 else (x, y))
    federation = Simulation(ClientData.from_arrays(clients), linear(3, 3))
    first, _ = describe_data(federation, LABELS, CLUSTERS, Names())
    assert first.class_differences[2] == pytest.approx(0.0, abs=0.3)
    swapped = [difference for difference in first.class_differences[:2] if difference is not None]
    assert min(swapped) > 1
    assert len(swapped) == 2
    parts = sorted(first.words.split("; "))
    assert [part.split(":")[0] for part in parts] == [
        "within class 0, input 0 is lower", "within class 1, input 0 is higher",
    ]  # fmt: skip
    as_images, _ = describe_data(federation, LABELS, CLUSTERS, Names(input_shape=(1, 3)))
    assert as_images.words.startswith("inputs differ, in standard deviations, within class ")
    assert "2 (" not in as_images.words


def test_targets_that_are_values_are_a_column() -> None:
    federation = Simulation(table(targets=True), linear(3))
    first, _ = describe_data(federation, LABELS, CLUSTERS, Names())
    assert first.class_names == ()
    assert {feature.name for feature in first.features} == {
        "input 0", "input 1", "input 2", "target",
    }  # fmt: skip
    assert first.mean_input is not None
    assert len(first.mean_input) == 3
    assert first.words.startswith("input 1 is higher: ")


def test_images_are_described_as_a_whole(federation: Simulation) -> None:
    truth = federation.data.truth
    assert truth is not None
    names = Names(input_shape=(8, 8))
    first, _ = describe_data(federation, truth.labels, CLUSTERS, names)
    assert "the mean image differs" in first.words
    assert "input" not in first.words.split(";")[0]
    assert first.mean_input is not None
    assert len(first.mean_input) == 64


def test_integer_inputs_have_no_columns() -> None:
    x = torch.randint(5, (40, 6), generator=torch.Generator().manual_seed(0))
    clients = ClientData.from_arrays([(x, x[:, 0] % 3)] * 5)

    class Embedded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = torch.nn.Embedding(5, 4), torch.nn.Linear(24, 3)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.head(self.embedding(tokens).flatten(1)))

    federation = Simulation(clients, Embedded)
    first, _ = describe_data(federation, LABELS, CLUSTERS, Names())
    assert (first.features, first.mean_input) == ((), None)
    assert first.words == "labels and inputs are alike on average; how they are related may differ"


def test_the_reference_federation_gives_the_same() -> None:
    clients, model = table(skew=True), mlp(3, 4, 3)
    ours, reference = (
        describe_data(make(clients, model), LABELS, CLUSTERS, Names())
        for make in (Simulation, ReferenceFederation)
    )
    for first, second in zip(ours, reference, strict=True):
        assert first.words == second.words
        np.testing.assert_allclose(first.class_shares, second.class_shares)


def test_missing_replies_are_left_out() -> None:
    federation = DropByNumber(Simulation(table(), linear(3, 3)), {1: [0]})
    first, second = describe_data(federation, LABELS, CLUSTERS, Names())
    assert (first.samples, second.samples) == (200, 400)


def test_wrong_names_are_refused() -> None:
    federation = Simulation(table(), linear(3, 3))
    with pytest.raises(InputError, match="there are 3 features, but 2 names for them"):
        describe_data(federation, LABELS, CLUSTERS, Names(("a", "b")))
    with pytest.raises(InputError, match="there are 3 classes, but 1 names for them"):
        describe_data(federation, LABELS, CLUSTERS, Names(None, ("a",)))


def test_a_constant_feature_does_not_differ() -> None:
    x = np.ones((40, 2), np.float32)
    clients = ClientData.from_arrays([(x, np.arange(40) % 2)] * 5)
    first, _ = describe_data(Simulation(clients, linear(2, 2)), LABELS, CLUSTERS, Names())
    assert [feature.difference for feature in first.features] == [0.0, 0.0]
    assert (
        difference_words(first)
        == "labels and inputs are alike on average; how they are related may differ"
    )


def test_layers_are_ordered_by_their_difference() -> None:
    models = torch.tensor([[1.0, 0.0, 3.0], [1.0, 0.0, -3.0], [1.0, 0.0, 3.0]])
    layers = {"same": slice(0, 1), "untrained": slice(1, 2), "head": slice(2, 3)}
    differences = layer_differences(models, torch.zeros(3), layers)
    assert [layer.name for layer in differences] == ["head", "same", "untrained"]
    pairs = np.mean([6.0**2, 0.0, 6.0**2])
    assert differences[0].difference == pytest.approx(np.sqrt(pairs) / 3)
    assert differences[2].difference == 0.0


def test_names_and_units_are_those_of_the_table() -> None:
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(8), 60)
    far = number % 2 == 0
    miles = rng.normal(np.where(far, 2000, 500), 50)
    rows = {
        "airport": number, "miles": miles, "minutes": miles * np.where(far, 0.1, 0.3),
        "carrier": np.where(rng.random(480) < np.where(far, 0.8, 0.3), "UA", "AA"),
    }  # fmt: skip
    clients = ClientData.from_frame(rows, client="airport", target="minutes", target_kind="values")
    assert clients.schema is not None
    federation = Simulation(clients, linear(3))
    labels = np.array([0, 1] * 4)
    first, _ = describe_data(federation, labels, CLUSTERS, table_names(clients.schema))
    by_name = {feature.name: feature for feature in first.features}
    assert set(by_name) == {"miles", "carrier=AA", "carrier=UA", "minutes"}
    assert by_name["miles"].mean == pytest.approx(2000, rel=0.02)
    assert by_name["miles"].others == pytest.approx(500, rel=0.05)
    assert by_name["minutes"].mean == pytest.approx(200, rel=0.05)
    assert re.search(r"miles is higher: \d{4} against \d{3}", first.words)
    assert re.search(r"carrier=(UA is more|AA is less) common: \d\d% against \d\d%", first.words)
