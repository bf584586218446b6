"""Newcomers without labels: statistics of made-up outputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from srfca.federation.moments import GroupMoments, group_moments
from srfca.methods._common.input_statistics import (
    INPUT_LIMIT,
    ClientOutputs,
    InputStatistics,
    fit_statistics,
    input_scores,
    place_by_inputs,
)

Array = NDArray[np.float64]
WIDTH = 4


def outputs(rng: np.random.Generator, shifts: list[float], clients: int, n: int) -> GroupMoments:
    """Return moments of the outputs of models, whose logits are shifted, on clients' inputs."""
    classes = rng.integers(WIDTH, size=clients * n)
    logits = 3 * np.eye(WIDTH)[classes] + rng.standard_normal((clients * n, WIDTH))
    values = np.stack([logits + shift * np.array([1.0, -1.0, 0.5, 0.0]) for shift in shifts])
    owner = torch.arange(clients).repeat_interleave(n)
    x = torch.from_numpy(values)
    return group_moments(x.log_softmax(2), owner, x.argmax(2), clients, WIDTH)


def join(parts: list[GroupMoments]) -> GroupMoments:
    return GroupMoments(
        torch.cat([part.counts for part in parts]),
        torch.cat([part.means for part in parts]),
        torch.cat([part.scatter for part in parts]),
    )


def two_clusters(
    difference: float, clients: int = 15, held_out: int = 12, seed: int = 0
) -> tuple[ClientOutputs, ClientOutputs]:
    """Return held-out and training outputs of two clusters; a model sees others' inputs shifted."""
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1], clients)

    def draw(n: int) -> ClientOutputs:
        shifts = [[0.0, difference], [difference, 0.0]]
        parts = [outputs(rng, shift, clients, n) for shift in shifts]
        return ClientOutputs.of(join(parts), labels)

    return draw(held_out), draw(60)


def test_newcomers_are_placed_by_what_their_inputs_look_like() -> None:
    statistics = fit_statistics(*two_clusters(1.0))
    assert statistics.alike.tolist() == [[1, 0], [0, 1]]
    rng = np.random.default_rng(1)
    shifts = [[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]]
    newcomers = join([outputs(rng, shift, 20, 100) for shift in shifts])
    labels, confidence = place_by_inputs(
        input_scores(statistics, newcomers), statistics.alike.numpy()
    )
    assert labels.tolist() == [0] * 20 + [1] * 20 + [-1] * 20
    assert (confidence[:40] > 0.99).all()


def test_scores_of_clients_of_a_cluster_are_normal() -> None:
    statistics = fit_statistics(*two_clusters(1.0, clients=40, held_out=30))
    newcomers = outputs(np.random.default_rng(2), [0.0, 1.0], 400, 50)
    scores = input_scores(statistics, newcomers)[:, 0]
    assert scores.mean() == pytest.approx(0.0, abs=0.3)
    assert scores.std() == pytest.approx(1.0, abs=0.2)
    assert scores.max() < INPUT_LIMIT + 1


def test_clusters_with_similar_inputs_are_not_distinguished() -> None:
    statistics = fit_statistics(*two_clusters(0.0))
    assert statistics.alike.tolist() == [[1, 1], [1, 1]]
    newcomers = outputs(np.random.default_rng(1), [0.0, 0.0], 30, 200)
    labels, confidence = place_by_inputs(
        input_scores(statistics, newcomers), statistics.alike.numpy()
    )
    assert (labels == -1).all()
    assert confidence.tolist() == pytest.approx([0.5] * 30)


def test_a_newcomer_may_have_few_of_the_classes() -> None:
    statistics = fit_statistics(*two_clusters(1.0))
    rng = np.random.default_rng(3)
    logits = np.array([3.0, 0, 0, 0]) + rng.standard_normal((1, 100, WIDTH))
    x = torch.from_numpy(np.concatenate([logits, logits + np.array([1.0, -1.0, 0.5, 0.0])]))
    zeros = torch.zeros(100, dtype=torch.int64)
    one_class = group_moments(x.log_softmax(2), zeros, x.argmax(2), 1, WIDTH)
    assert input_scores(statistics, one_class)[0, 0] < INPUT_LIMIT


def test_clients_of_the_federation_find_their_cluster_by_their_training_inputs() -> None:
    """On training inputs models are more confident; that is not held against them."""
    held_out, training = two_clusters(1.0)
    confident = training.means.copy()
    confident[:15, 0] *= 0.5
    confident[15:, 1] *= 0.5
    training = ClientOutputs(training.counts, confident, training.scatter, training.labels)
    statistics = fit_statistics(held_out, training)
    moments = GroupMoments(*map(torch.from_numpy, (training.counts, confident, training.scatter)))
    labels, _ = place_by_inputs(input_scores(statistics, moments), statistics.alike.numpy())
    assert labels.tolist() == training.labels.tolist()


def test_one_liar_does_not_widen_a_cluster() -> None:
    held_out, training = two_clusters(1.0)
    honest = fit_statistics(held_out, training)
    counts, means, scatter = held_out.counts.copy(), held_out.means.copy(), held_out.scatter.copy()
    counts[3], means[3], scatter[3] = 1e9, -50.0, 1e12
    lying = ClientOutputs(counts, means, scatter, held_out.labels)
    statistics = fit_statistics(lying, training)
    rng = np.random.default_rng(1)
    newcomers = join([outputs(rng, shift, 10, 100) for shift in ([0.0, 1.0], [2.0, 2.0])])
    for fitted in (honest, statistics):
        labels, _ = place_by_inputs(input_scores(fitted, newcomers), fitted.alike.numpy())
        assert labels.tolist() == [0] * 10 + [-1] * 10


@settings(deadline=None, max_examples=15)
@given(st.permutations(range(10)), st.integers(0, 3))
def test_the_order_of_clients_does_not_matter(order: list[int], seed: int) -> None:
    held_out, training = two_clusters(1.0, clients=5, seed=seed)

    def changed(part: ClientOutputs) -> ClientOutputs:
        parts = part.counts[order], part.means[order], part.scatter[order]
        return ClientOutputs(*parts, part.labels[order])

    statistics = fit_statistics(held_out, training)
    permuted = fit_statistics(changed(held_out), changed(training))
    newcomers = outputs(np.random.default_rng(9), [0.0, 1.0], 4, 30)
    np.testing.assert_allclose(
        input_scores(permuted, newcomers), input_scores(statistics, newcomers), atol=1e-6
    )


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 50))
def test_any_small_federation_has_finite_statistics(clients: int, n: int, seed: int) -> None:
    statistics = fit_statistics(*two_clusters(1.0, clients, n, seed))
    assert all(tensor.isfinite().all() for tensor in statistics.tensors().values())
    newcomers = outputs(np.random.default_rng(seed), [0.0, 1.0], 2, 5)
    assert np.isfinite(input_scores(statistics, newcomers)).all()


def test_an_empty_cluster_attracts_no_client() -> None:
    held_out, training = two_clusters(1.0)
    only_first = ClientOutputs(
        held_out.counts[:15], held_out.means[:15], held_out.scatter[:15], held_out.labels[:15]
    )
    statistics = fit_statistics(only_first, training)
    assert statistics.clients.tolist() == [15.0, 0.0]
    scores = input_scores(statistics, outputs(np.random.default_rng(1), [0.0, 0.0], 3, 100))
    assert np.isinf(scores[:, 1]).all()
    labels, confidence = place_by_inputs(scores, statistics.alike.numpy())
    assert labels.tolist() == [0, 0, 0]
    assert confidence.tolist() == [1.0, 1.0, 1.0]


def test_moments_that_are_not_valid_do_not_count() -> None:
    moments = outputs(np.random.default_rng(0), [0.0, 0.0], 4, 10)
    moments.means[1] = torch.nan
    moments.counts[2] = 0
    assert ClientOutputs.of(moments, np.array([0, 0, 1, 1])).labels.tolist() == [0, 1]


def test_tensors_are_the_statistics_to_the_bit() -> None:
    statistics = fit_statistics(*two_clusters(1.0))
    again = InputStatistics.from_tensors(statistics.tensors())
    for name, tensor in statistics.tensors().items():
        assert torch.equal(getattr(again, name), tensor)
