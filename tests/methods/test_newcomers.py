"""Newcomers of rotated digits: of known groups, of others, with labels and without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from srfca import SRFCA, ClientData, FedAvg, InputError, LocalTraining, Result, Simulation, data
from srfca.federation import LossMoments, OutputMoments
from srfca.methods._common.assignment import Assignment
from srfca.methods._common.input_statistics import INPUT_LIMIT
from srfca.methods._common.loss_limits import LIMIT
from srfca.models import linear, mlp
from tests import examples
from tests.methods.helpers import DropByNumber

MODEL = mlp(64, 32, 10)
LOCAL = LocalTraining(steps=100, batch_size=10, lr=0.5)
NUM_GROUPS = 3
"""Groups of the federation: images rotated by 0, 90 and 180 degrees."""


def parts(seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Return 40 clients of 40 images each, of four rotations in turn."""
    digits = data.rotated_digits(num_clients=40, rotations=4, seed=seed)
    assert digits.test is not None
    both = [(digits.train.of(c), digits.test.of(c)) for c in range(40)]
    return [(torch.cat([a[0], b[0]]), torch.cat([a[1], b[1]])) for a, b in both]


MEMBERS = [client for client in range(28) if client % 4 < NUM_GROUPS]
KNOWN = [client for client in range(28, 40) if client % 4 < NUM_GROUPS]
UNKNOWN = [client for client in range(40) if client % 4 == NUM_GROUPS]


def federation_of(clients: list[int], **options: float) -> Simulation:
    everyone = parts()
    chosen = {str(client): everyone[client] for client in clients}
    truth = [client % 4 for client in clients]
    return Simulation(ClientData.from_arrays(chosen, truth=truth), MODEL, device="cpu", **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def federation() -> Simulation:
    return federation_of(MEMBERS, validation=0.5)


@pytest.fixture(scope="module")
def result(federation: Simulation) -> Result:
    found = SRFCA(local=LOCAL).fit(federation).with_input_statistics(federation)
    assert found.partition == federation.data.truth
    return found


@pytest.fixture(scope="module")
def newcomers() -> Simulation:
    return federation_of([*KNOWN, *UNKNOWN])


def expected_labels() -> list[int]:
    return [client % 4 for client in KNOWN] + [-1] * len(UNKNOWN)


def test_newcomers_are_placed_or_refused(result: Result, newcomers: Simulation) -> None:
    assignment = result.assign(newcomers)
    assert assignment.labels.tolist() == expected_labels()
    assert assignment.losses.shape == (len(newcomers.client_ids), NUM_GROUPS)
    assert assignment.scores.shape == (len(newcomers.client_ids), NUM_GROUPS)
    chosen = assignment.scores[np.arange(len(KNOWN)), assignment.labels[: len(KNOWN)]]
    assert (chosen < LIMIT).all()
    nearest = assignment.losses.argmin(1).numpy()
    refused = np.arange(len(KNOWN), len(nearest))
    assert (assignment.scores[refused, nearest[refused]] > LIMIT).all()
    assert (assignment.confidence[: len(KNOWN)] > 0.99).all()


def joined(clients: list[int]) -> tuple[Tensor, Tensor]:
    """Return the samples of several clients as those of one."""
    everyone = parts()
    x, y = zip(*(everyone[client] for client in clients), strict=True)
    return torch.cat(x), torch.cat(y)


def test_newcomers_without_labels(result: Result) -> None:
    groups = [[client for client in KNOWN if client % 4 == group] for group in range(NUM_GROUPS)]
    clients = ClientData.from_arrays([*map(joined, groups), joined(UNKNOWN)])
    assignment = result.assign(Simulation(clients, MODEL, device="cpu"), labels=False)
    assert assignment.labels.tolist() == [0, 1, 2, -1]
    assert (assignment.confidence[:3] >= 0.9).all()
    assert (assignment.scores[range(3), range(3)] < INPUT_LIMIT).all()
    assert assignment.losses.isnan().all()


def test_with_few_inputs_the_answer_may_be_open_but_is_not_wrong(
    result: Result, newcomers: Simulation
) -> None:
    assignment = result.assign(newcomers, range(len(KNOWN)), labels=False)
    placed = assignment.labels >= 0
    assert placed.any()
    assert (assignment.labels == np.array(expected_labels())[: len(KNOWN)])[placed].all()
    assert (assignment.confidence[placed] >= 0.9).all()


def test_targets_of_newcomers_without_labels_are_not_read(
    result: Result, newcomers: Simulation
) -> None:
    train = newcomers.data.train
    blank = replace(newcomers.data, train=replace(train, y=torch.zeros_like(train.y)), test=None)
    assignment = result.assign(Simulation(blank, MODEL, device="cpu"), labels=False)
    expected = result.assign(newcomers, labels=False)
    assert np.array_equal(assignment.scores, expected.scores)
    assert np.array_equal(assignment.labels, expected.labels)


def test_a_swap_of_two_labels_is_noticed(result: Result) -> None:
    x, y = joined([client for client in KNOWN if client % 4 == 0])
    swapped = torch.where(y == 3, 7, torch.where(y == 7, 3, y))
    clients = ClientData.from_arrays({"as it is": (x, y), "swapped": (x, swapped)})
    assignment = result.assign(Simulation(clients, MODEL, device="cpu"))
    assert assignment.labels[0] >= 0
    assert assignment.labels[1] == -1


def test_clients_of_the_federation_belong_to_their_clusters(
    result: Result, federation: Simulation
) -> None:
    assert result.assign(federation).labels.tolist() == result.labels.tolist()
    by_inputs = result.assign(federation, labels=False).labels
    placed = by_inputs >= 0
    assert placed.any()
    assert (by_inputs[placed] == result.labels[placed]).all()


def test_clusters_that_differ_by_their_labels_alone_have_the_same_inputs() -> None:
    everyone = parts()
    same = [client for client in range(40) if client % 4 == 0]
    permuted = {
        str(client): (everyone[client][0], (everyone[client][1] + 3 * (number % 2)) % 10)
        for number, client in enumerate(same)
    }
    truth = [number % 2 for number in range(len(same))]
    clients = ClientData.from_arrays(permuted, truth=truth)
    federation = Simulation(clients, MODEL, device="cpu", validation=0.3)
    result = SRFCA(local=LOCAL).fit(federation).with_input_statistics(federation)
    assert result.partition == clients.truth
    assert result.input_statistics is not None
    assert result.input_statistics.alike.bool().all()
    assignment = result.assign(federation, labels=False)
    assert (assignment.labels == -1).all()
    assert (assignment.confidence <= 0.5).all()
    assert result.assign(federation).labels.tolist() == result.labels.tolist()


def test_a_loaded_result_assigns_in_the_same_way(
    result: Result, newcomers: Simulation, tmp_path: Path
) -> None:
    loaded = Result.load(result.save(tmp_path))
    assert loaded.loss_limits is not None
    assert loaded.input_statistics is not None
    for labels in (True, False):
        first, second = (r.assign(newcomers, labels=labels) for r in (result, loaded))
        assert np.array_equal(first.labels, second.labels)
        assert np.array_equal(first.scores, second.scores)
        assert np.array_equal(first.confidence, second.confidence)


def test_one_request_assigns(result: Result, newcomers: Simulation) -> None:
    recorded = DropByNumber(newcomers)
    result.assign(recorded)
    result.assign(recorded, labels=False)
    first, second = recorded.requests
    assert isinstance(first, LossMoments)
    assert isinstance(second, OutputMoments)
    assert first.splits == second.splits == ("train", "validation")


def test_newcomers_that_do_not_reply(result: Result, newcomers: Simulation) -> None:
    for labels in (True, False):
        dropped = DropByNumber(newcomers, {0: [1]})
        assignment = result.assign(dropped, [0, 1, 2], labels=labels)
        assert assignment.labels[1] == -1
        assert np.isnan(assignment.scores[1]).all()
        assert np.isnan(assignment.confidence[1])
        assert np.isfinite(assignment.scores[[0, 2]]).all()


def test_statistics_of_inputs_are_asked_for(
    result: Result, federation: Simulation, newcomers: Simulation
) -> None:
    without = replace(result, input_statistics=None)
    with pytest.raises(InputError, match="with_input_statistics"):
        without.assign(newcomers, labels=False)
    with pytest.raises(InputError, match=r"that are not the 21 of the result"):
        without.with_input_statistics(newcomers)
    with pytest.raises(InputError, match="no clusters to describe"):
        FedAvg(local=LOCAL).fit(federation).with_input_statistics(federation)
    nobody = DropByNumber(federation, {number: range(21) for number in range(2)})
    with pytest.raises(InputError, match="no client has replied"):
        without.with_input_statistics(nobody)


def test_training_inputs_serve_where_nothing_is_held_out() -> None:
    federation = federation_of(MEMBERS, validation=0.0)
    result = SRFCA(local=LOCAL, threshold="30%").fit(federation).with_input_statistics(federation)
    assert result.loss_limits is None
    assert result.input_statistics is not None
    assignment = result.assign(federation)
    assert np.isnan(assignment.scores).all()
    assert (assignment.labels >= 0).all()


def test_regressions_without_labels() -> None:
    """Inputs of a linear regression are alike in all clusters: nobody is placed by them."""
    clients = examples.regression([60] * 12, clusters=3)
    federation = Simulation(clients, linear(4), device="cpu")
    local = LocalTraining(steps=30, local_steps=3, batch_size=10, lr=0.05)
    result = SRFCA(local=local).fit(federation).with_input_statistics(federation)
    assert result.partition == clients.truth
    assert result.input_statistics is not None
    assert result.input_statistics.means.shape == (3, 1, 1)
    assert result.assign(federation).labels.tolist() == result.labels.tolist()
    assert (result.assign(federation, labels=False).labels == -1).mean() > 0.8


def test_an_uncertain_newcomer_gets_a_note(result: Result) -> None:
    """One has images of two groups in equal parts, the other images of one."""
    everyone = parts()
    first, second = everyone[KNOWN[0]], everyone[KNOWN[1]]
    mixed = tuple(torch.cat([a, b]) for a, b in zip(first, second, strict=True))
    clients = ClientData.from_arrays({"mixed": mixed, "clear": first})
    assignment = replace(result, loss_limits=None).assign(Simulation(clients, MODEL, device="cpu"))
    assert assignment.client_ids == ("mixed", "clear")
    assert assignment.doubtful.tolist() == [True, False]
    groups = {KNOWN[0] % 4, KNOWN[1] % 4}
    assert {int(assignment.labels[0]), int(assignment.next_cluster[0])} == groups
    unsure, sure = assignment.sentences()
    assert "'mixed'" in unsure
    assert ("nearly a coin toss between cluster" in unsure) or ("is possible" in unsure)
    assert sure.startswith(f"'clear' belongs to cluster {KNOWN[0] % 4} (confidence 99%")


def assignment_of(
    label: int, confidence: float, losses: list[float] | None = None, scores: float = 0.0
) -> Assignment:
    values = [[torch.nan] * 2] if losses is None else [losses]
    score = np.full((1, len(values[0])), scores)
    return Assignment(
        np.array([label]), torch.tensor(values), score, np.array([confidence]), ("ann",)
    )


@pytest.mark.parametrize(
    ("assignment", "sentence", "doubtful"),
    [
        (assignment_of(-1, torch.nan), "'ann' did not reply.", False),
        (assignment_of(-1, 0.9, [1.0, 2.0]), "'ann' fits no cluster.", False),
        (assignment_of(-1, 0.6), "'ann' cannot be placed by its inputs (confidence 60%).", False),
        (assignment_of(0, 1.0, [1.0]), "'ann' belongs to cluster 0.", False),
        (
            assignment_of(0, 0.7, [1.0, 1.1]),
            "'ann' belongs to cluster 0 (confidence 70%; cluster 1 is possible).",
            True,
        ),
        (
            assignment_of(1, 0.55, [1.0, 0.9]),
            "'ann' is nearly a coin toss between cluster 1 and cluster 0 (confidence 55%).",
            True,
        ),
        (
            assignment_of(1, 0.9999, [1.0, 0.1]),
            "'ann' belongs to cluster 1 (confidence 99% or more).",
            False,
        ),
    ],
)
def test_every_newcomer_has_a_sentence(
    assignment: Assignment, sentence: str, doubtful: bool
) -> None:
    assert assignment.sentences() == [sentence]
    assert assignment.doubtful.tolist() == [doubtful]
