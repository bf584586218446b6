"""Which local models and which losses ONE_SHOT believes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srfca import SRFCA, ClientData, LocalTraining, Partition, Simulation, data
from srfca.distances import ModelSet
from srfca.errors import SrfcaWarning
from srfca.experiments.stress import num_misplaced
from srfca.federation import Federation, Losses, Middleware, Replies, Request
from srfca.federation.middleware.attacks import ATTACKS, Attacked, draw_attackers
from srfca.federation.replies import T
from srfca.federation.requests import Train
from srfca.methods import Run
from srfca.methods.sr_fca.clusters import Clusters
from srfca.methods.sr_fca.screening import (
    NUM_WITNESSES,
    PeerLosses,
    asymmetric,
    contradicting,
    copies,
    fits_nobody,
    useless,
)
from srfca.models import mlp

LOCAL = LocalTraining(steps=60, local_steps=5, batch_size=10, lr=0.5)


def two_groups(seed: int, count: int = 12) -> np.ndarray:
    """Return losses of local models: 0.1 on their own data, about 1 in their group, 4 outside."""
    rng = np.random.default_rng(seed)
    group = np.arange(count) % 2
    losses = np.where(group[:, None] == group, 1.0, 4.0) * rng.uniform(0.7, 1.4, (count, count))
    np.fill_diagonal(losses, 0.1)
    return np.asarray(losses)


@given(st.integers(0, 10**6))
def test_honest_clients_pass_screening(seed: int) -> None:
    losses = two_groups(seed)
    assert not contradicting(PeerLosses.of_all(losses)).any()
    assert not useless(PeerLosses.of_all(losses)).any()


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-6, 1e6, 1e30, np.inf]))
def test_up_to_a_third_of_liars_are_screened_out(seed: int, lie: float) -> None:
    losses = two_groups(seed)
    liars = np.arange(12) >= 8
    losses[:, liars] = lie
    assert contradicting(PeerLosses.of_all(losses)).tolist() == liars.tolist()


def test_a_model_that_does_not_fit_its_own_client_is_useless() -> None:
    losses = two_groups(0)
    losses[3, :] = 5.0
    assert np.flatnonzero(useless(PeerLosses.of_all(losses))).tolist() == [3]
    losses[:, 7] = np.nan
    assert np.flatnonzero(useless(PeerLosses.of_all(losses))).tolist() == [3], (
        "unknown losses decide nothing"
    )


@given(st.integers(0, 10**6))
def test_noisy_clients_are_believed(seed: int) -> None:
    """Their losses are 400 times as large with any model, also with their own."""
    losses = two_groups(seed)
    losses[:, 8:] += 400 * np.random.default_rng(seed).uniform(0.99, 1.01, (12, 4))
    losses[np.arange(8, 12), np.arange(8, 12)] = 390.0
    assert not contradicting(PeerLosses.of_all(losses)).any()


def with_few_classes(kind: int, seed: int) -> Simulation:
    """Return 18 clients with all classes, and 2 with one or two classes."""
    made = data.rotated_digits(num_clients=20, rotations=1, seed=seed)
    clients = [made.train.of(client) for client in range(20)]
    inputs, targets = (torch.cat(part).numpy() for part in zip(*clients, strict=True))
    samples = [(x.numpy(), y.numpy()) for x, y in clients]
    for client, classes in ((4, (3, 5)), (11, (7, 1))):
        of_classes = np.flatnonzero(np.isin(targets, classes[:kind]))[: len(samples[client][1])]
        samples[client] = (inputs[of_classes], targets[of_classes])
    return Simulation(ClientData.from_arrays(samples), mlp(64, 32, 10), validation=0.2)


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("seed", [1, 2])
def test_clients_with_few_classes_are_believed(kind: int, seed: int) -> None:
    run = Run(with_few_classes(kind, seed))
    options = SRFCA()
    local = replace(LOCAL, steps=200, local_steps=200)
    starts = run.initial_model().repeat(20, 1)
    rows = run.train(Train(run.everyone, starts, local, run.key("one_shot"))).values
    losses = PeerLosses.ask(run, ModelSet.of_clients(run, rows), options.all_pairs)
    if kind == 1:
        assert asymmetric(losses)[11], "its model is bad for all others"
    assert not contradicting(losses).any()
    assert not (useless(losses) | fits_nobody(losses, contradicting(losses))).any()


def test_bad_models_that_differ_are_all_found() -> None:
    """Two of them are hardly worse than those of others, but far from all honest ones."""
    losses = two_groups(0)
    for client, factor in ((3, 30.0), (6, 1.8), (8, 1.3), (9, 1.1)):
        losses[client] = factor * np.sort(np.delete(losses[:, client], client))[2]
        losses[client] *= np.where(np.arange(12) == client, 1.0, 9.0)
    assert np.flatnonzero(useless(PeerLosses.of_all(losses))).tolist() == [3, 6, 8, 9]


def test_without_a_gap_no_model_is_useless() -> None:
    losses = two_groups(0)
    for client in range(12):
        third = np.sort(np.delete(losses[:, client], client))[2]
        losses[client, client] = third * 1.25 ** (4 - client)
    assert not useless(PeerLosses.of_all(losses)).any()


def test_a_model_bad_for_everyone_is_distinguished_from_a_lie() -> None:
    losses = two_groups(0)
    losses[3, :] *= 100.0
    losses[3, 3] = 1.5
    losses[:, 6] = 0.0
    losses[8, :] *= 100.0
    losses[:, 8] = 0.0
    distrusted = contradicting(PeerLosses.of_all(losses))
    assert np.flatnonzero(distrusted).tolist() == [6, 8]
    assert np.flatnonzero(fits_nobody(PeerLosses.of_all(losses), distrusted)).tolist() == [3, 8]


@given(st.integers(0, 10**6), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_only_the_first_of_several_equal_models_counts(
    seed: int, offset: float, scale: float
) -> None:
    rows = torch.from_numpy(np.random.default_rng(seed).normal(size=(9, 50)))
    rows[4], rows[7] = rows[2], rows[2] + 1e-6
    assert np.flatnonzero(copies(offset + scale * rows)).tolist() == [4, 7]
    assert not copies(rows[[0, 1, 2, 3, 5, 6, 8]]).any()
    assert not copies(torch.zeros(6, 3)).any(), "all are equal"


def test_most_clients_are_never_screened_out() -> None:
    losses = two_groups(0)
    np.fill_diagonal(losses, 50.0)
    assert not useless(PeerLosses.of_all(losses)).any()
    assert not contradicting(PeerLosses.of_all(np.full((6, 6), np.nan))).any()


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-6, 1e6, np.inf]))
def test_a_liar_does_not_train_if_others_models_are_better_everywhere(
    seed: int, lie: float
) -> None:
    losses = two_groups(seed, count=20)
    liars, bad = np.arange(20) >= 16, np.arange(20) >= 18
    losses[:, liars] = lie
    losses[bad] *= 3.5
    everyone = PeerLosses.of_all(losses)
    assert contradicting(everyone).tolist() == liars.tolist()
    assert fits_nobody(everyone, liars).tolist() == bad.tolist()


@pytest.fixture(scope="module")
def digits() -> Simulation:
    clients = data.rotated_digits(num_clients=20, rotations=2)
    return Simulation(clients, mlp(64, 32, 10), validation=0.2)


@pytest.fixture(scope="module")
def clean_accuracy(digits: Simulation) -> float:
    return accuracy(digits, digits, np.array([], dtype=np.int64))[0]


def accuracy(
    digits: Simulation,
    attacked: Simulation | Attacked,
    attackers: np.ndarray,
    all_pairs: int = 1000,
) -> tuple[float, int]:
    """Return the accuracy of honest clients, and how many are misplaced."""
    result = SRFCA(local=LOCAL, trim=0.25, all_pairs=all_pairs).fit(attacked)
    scores, truth = result.scores(digits, "test"), digits.data.truth
    assert scores.accuracy is not None
    assert truth is not None
    honest = np.setdiff1d(np.arange(20), attackers)
    return (
        float(scores.accuracy[honest.tolist()].mean()),
        num_misplaced(result.partition, truth, honest),
    )


@pytest.mark.filterwarnings("ignore::srfca.errors.SrfcaWarning")
@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "label-flip"])
def test_attackers_neither_misplace_nor_harm_honest_clients(
    name: str, digits: Simulation, clean_accuracy: float
) -> None:
    truth = digits.data.truth
    assert truth is not None
    attackers = draw_attackers(digits.client_ids, 0.2, 0, truth.labels)
    attacked = Attacked(digits, ATTACKS[name], attackers, 0, truth.labels)
    honest, misplaced = accuracy(digits, attacked, attackers)
    assert misplaced == 0
    assert honest > clean_accuracy - 0.04, "fewer clients train than in the clean run"


def test_witnesses_find_what_all_pairs_find() -> None:
    losses = two_groups(3, count=60)
    liars, bad = np.array([4, 17, 31]), np.array([8, 22, 50])
    losses[:, liars] = 0.0
    losses[bad] = 30.0
    everyone = PeerLosses.of_all(losses)
    witnesses = np.arange(3, 3 + NUM_WITNESSES)
    few = PeerLosses(
        everyone.of_own_model,
        everyone.reported[witnesses],
        everyone.witnessed[witnesses],
        witnesses,
    )
    distrusted = contradicting(few)
    assert set(liars) <= set(np.flatnonzero(distrusted)) <= {*liars, *bad}
    assert np.flatnonzero(useless(few) | fits_nobody(few, distrusted)).tolist() == bad.tolist()


def test_the_clients_are_asked_about_the_models_of_witnesses_alone() -> None:
    federation = Simulation(
        data.rotated_digits(num_clients=40, rotations=2), mlp(64, 8, 10), validation=0.2
    )
    run = Run(federation)
    options = SRFCA(local=LOCAL, all_pairs=39)
    starts = run.initial_model().repeat(40, 1)
    rows = run.train(Train(run.everyone, starts, LOCAL, run.key("one_shot"))).values
    models = ModelSet.of_clients(run, rows, subsample=options.subsample(0))
    before = run.federation.spent.evaluations
    few = PeerLosses.ask(run, models, options.all_pairs)
    assert run.federation.spent.evaluations - before == 2 * 40 * NUM_WITNESSES + 40
    everyone = PeerLosses.ask(run, models, all_pairs=40)
    torch.testing.assert_close(few.of_own_model, everyone.of_own_model, rtol=1e-4, atol=1e-5)
    for part in ("reported", "witnessed"):
        expected = getattr(everyone, part)[few.witnesses]
        torch.testing.assert_close(getattr(few, part), expected, equal_nan=True)


@pytest.mark.filterwarnings("ignore::srfca.errors.SrfcaWarning")
@pytest.mark.parametrize("name", ["sign-flip", "high-losses", "mimic"])
def test_many_clients_are_screened_too(
    name: str, digits: Simulation, clean_accuracy: float
) -> None:
    truth = digits.data.truth
    assert truth is not None
    attackers = draw_attackers(digits.client_ids, 0.2, 0, truth.labels)
    attacked = Attacked(digits, ATTACKS[name], attackers, 0, truth.labels)
    honest, misplaced = accuracy(digits, attacked, attackers, all_pairs=10)
    assert misplaced == 0
    assert honest > clean_accuracy - 0.04, "fewer clients train than in the clean run"


class TrainingLog(Middleware):
    """Notes which clients train in which purpose."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self.trained: dict[str, set[int]] = {}

    def ask(self, request: Request[T]) -> Replies[T]:
        if isinstance(request, Train):
            self.trained.setdefault(request.key.purpose, set()).update(request.clients.tolist())
        return self.federation.ask(request)


@pytest.mark.filterwarnings("ignore::srfca.errors.SrfcaWarning")
@pytest.mark.parametrize("rotations", [1, 2])
def test_screened_clients_train_no_model_for_others(rotations: int) -> None:
    made = data.rotated_digits(num_clients=20, rotations=rotations)
    digits = Simulation(made, mlp(64, 32, 10), validation=0.2)
    attackers = [0, 5, 10, 15]
    log = TrainingLog(Attacked(digits, ATTACKS["reverse-scaling"], attackers))
    result = SRFCA(local=LOCAL, trim=0.25, final_steps=5).fit(log)
    alone = {"one_shot", "try fine-tuning"}
    rounds = {purpose: trained for purpose, trained in log.trained.items() if purpose not in alone}
    assert {"refine 1", "final"} <= set(rounds)
    assert rotations == 1 or "together" in rounds
    for purpose, trained in rounds.items():
        assert trained == set(range(20)) - set(attackers), purpose
    assert (result.labels >= 0).all(), "they are placed in the end"
    assert result.partition.num_clusters == rotations


def test_clusters_train_without_some_clients() -> None:
    clusters = Clusters(Partition([0, 1, 0, 1, 2, 2, -1]), torch.tensor([[0.0], [1.0], [2.0]]))
    few = clusters.without(np.array([0, 4]))
    assert few.partition.labels.tolist() == [-1, 0, 1, 0, -1, 2, -1]
    assert few.models.flatten().tolist() == [1.0, 0.0, 2.0]
    again = few.with_members_of(clusters)
    assert again.partition == clusters.partition
    assert torch.equal(again.models, clusters.models)
    assert clusters.without(np.array([4, 5])) is clusters, "a cluster would have no clients"


@pytest.mark.parametrize("distance", ["cross_loss", "balanced_cross_loss"])
def test_a_run_says_who_was_screened_and_why(distance: str, digits: Simulation) -> None:
    class Bad(Middleware):
        """Client 3 lies about its losses, and client 8 sends what client 12 has trained."""

        def ask(self, request: Request[T]) -> Replies[T]:
            replies = self.federation.ask(request)
            values = replies.values
            if isinstance(request, Train) and request.key.purpose == "one_shot":
                assert isinstance(values, torch.Tensor)
                rows = values.clone()
                rows[8] = rows[12]
                return replace(replies, values=rows)
            if isinstance(request, Losses) and request.split == "train":
                lies = torch.from_numpy(replies.clients == 3).unsqueeze(1)
                return replace(replies, values=values.masked_fill(lies, 0.0))
            return replies

    method = SRFCA(local=LOCAL, distance=distance, refine_steps=1, trial_steps=0)
    with pytest.warns(SrfcaWarning, match="screened") as caught:
        result = method.fit(Bad(digits))
    told = " ".join(str(each.message) for each in caught)
    assert "screened client '3': its losses contradict those of the others" in told
    assert "screened client '8': its local model is that of another client" in told
    screened = result.history[0].notes["screened"]
    assert list(screened) == ["3", "8"]


def test_a_copy_is_not_credited_to_the_client_with_the_lower_position() -> None:
    rows = torch.randn(6, 40, generator=torch.Generator().manual_seed(0))
    rows[1] = rows[4]
    own = np.array([0.1, 0.7, 0.1, 0.1, 0.1, 0.1])
    assert np.flatnonzero(copies(rows, own)).tolist() == [1], "it fits the data of client 4"
    own[4] = np.inf
    assert np.flatnonzero(copies(rows, own)).tolist() == [4], "client 4 is not believed"
    assert np.flatnonzero(copies(rows)).tolist() == [4]
