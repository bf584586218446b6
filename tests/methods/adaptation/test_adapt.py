"""Clients that drift are moved, others are not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srfca import SRFCA, FedAvg, InputError, LocalTraining, Result, Simulation, data, models
from srfca.aggregation import Mean, TrimmedMean
from srfca.data.drift import concept_transforms, drift_phases
from srfca.errors import SrfcaWarning
from srfca.federation import DropReplies, Federation, Middleware, Replies, Request, Train
from srfca.federation.middleware.attacks import ATTACKS, Attacked
from srfca.federation.replies import T
from srfca.methods.adaptation import adapt
from srfca.methods.adaptation.evidence import Evidence, Usual, drifted
from srfca.methods.adaptation.misfits import accept, distinct
from tests.methods.helpers import DropByNumber

LOCAL = LocalTraining(steps=80, batch_size=20, lr=0.5)
M = 16
NETWORK = models.mlp(64, 32, 10)
TURNS = concept_transforms("rotation", 4)


@cache
def digits(seed: int) -> Any:
    return data.rotated_digits(num_clients=M, rotations=1, seed=seed)


def federation(concepts: Any, seed: int = 0) -> Simulation:
    """Return digits where each client has its concept: 0 to 3, quarter turns."""
    (clients,) = drift_phases(digits(seed), np.asarray(concepts)[None], TURNS)
    return Simulation(clients, NETWORK, seed=seed)


@cache
def fitted(seed: int = 0, groups: int = 2) -> Result:
    start = federation(np.arange(M) % groups, seed)
    result = SRFCA(local=LOCAL, refine_steps=1, trial_steps=0).fit(start, seed)
    assert result.partition == start.data.truth
    return result


def moves(result: Result) -> dict[str, tuple[int, int, str]]:
    return {
        move["client"]: (move["from"], move["to"], move["why"])
        for move in result.history[-1].notes["moves"]
    }


def test_one_client_that_swaps_its_group_is_moved() -> None:
    concepts = np.arange(M) % 2
    concepts[5] = 0
    after = federation(concepts)
    result = adapt(fitted(), after, LOCAL, rounds=2)
    assert result.partition == after.data.truth
    assert moves(result) == {"5": (1, 0, "fits another cluster")}
    stage = result.history[-1]
    assert stage.name == "ADAPT 1"
    assert stage.notes["moved"] == 1
    assert "1 client moved" in stage.notes["decision"]
    move = stage.notes["moves"][0]
    assert move["loss_there"] < move["loss"]
    assert result.scores(after).loss.mean() < fitted().scores(after).loss.mean()


@pytest.mark.parametrize("seed", range(5))
def test_no_client_moves_without_drift(seed: int) -> None:
    same = federation(np.arange(M) % 2, seed)
    result = adapt(fitted(seed), same, LOCAL, rounds=1)
    assert result.partition == same.data.truth
    assert moves(result) == {}
    assert result.decision == "No client moved."
    assert not torch.equal(result.models, fitted(seed).models)


def test_nothing_is_trained_without_rounds() -> None:
    result = adapt(fitted(), federation(np.arange(M) % 2), LOCAL, rounds=0)
    assert torch.equal(result.models, fitted().models)
    assert result.history[-1].budget.local_steps == 0


def test_a_new_group_becomes_a_new_cluster() -> None:
    concepts = np.arange(M) % 2
    concepts[[2, 5, 8, 11]] = 2
    after = federation(concepts)
    result = adapt(fitted(), after, LOCAL, rounds=2)
    assert result.partition == after.data.truth
    assert {why for _, _, why in moves(result).values()} == {"new cluster"}
    assert result.history[-1].notes["misfits"] == ["2", "5", "8", "11"]
    assert len(result.models) == 3


def test_a_single_client_of_a_new_concept_is_alone() -> None:
    concepts = np.arange(M) % 2
    concepts[6] = 2
    after = federation(concepts)
    result = adapt(fitted(), after, LOCAL, rounds=2)
    assert result.partition == after.data.truth
    assert moves(result) == {"6": (0, 2, "fits no cluster")}


def test_recurrent_drift_reuses_clusters() -> None:
    concepts = np.arange(M) % 2
    away, back = federation(np.where(concepts == 1, 2, 0)), federation(concepts)
    drifted_result = adapt(fitted(), away, LOCAL, rounds=2)
    assert drifted_result.partition == away.data.truth
    assert len(drifted_result.models) == 3
    assert drifted_result.partition.num_clusters == 2
    assert torch.equal(drifted_result.models[2], fitted().models[1]), "kept without clients"
    returned = adapt(drifted_result, back, LOCAL, rounds=0)
    assert returned.partition == back.data.truth
    assert torch.equal(returned.models[1], fitted().models[1])
    assert {why for _, _, why in moves(returned).values()} == {"fits another cluster"}
    assert returned.history[-1].budget.local_steps == 0, "no training from scratch"


def test_cluster_ids_stay_the_same_and_are_never_used_again() -> None:
    concepts = np.arange(M) % 2
    first = adapt(fitted(), federation(np.where(concepts == 0, 2, 1)), LOCAL, rounds=1, keep=0)
    assert fitted().cluster_ids == (0, 1)
    assert first.cluster_ids == (2, 1), "the new cluster comes first, and has a new number"
    assert set(moves(first).values()) == {(0, 2, "new cluster")}
    second = adapt(first, federation(np.where(concepts == 0, 1, 3)), LOCAL, rounds=1, keep=1)
    assert second.cluster_ids == (1, 3, 2)
    assert moves(second)["0"] == (2, 1, "fits another cluster")
    assert moves(second)["1"] == (1, 3, "new cluster")
    assert second.history[-1].notes["next_cluster_id"] == 4


def test_cluster_ids_are_saved(tmp_path: Path) -> None:
    away = federation(np.where(np.arange(M) % 2 == 0, 2, 1))
    result = adapt(fitted(), away, LOCAL, rounds=1, keep=0)
    assert Result.load(result.save(tmp_path)).cluster_ids == (2, 1)


@pytest.mark.parametrize("seed", range(5))
def test_no_alarm_without_drift(seed: int) -> None:
    assert fitted(seed).drift_alarms(federation(np.arange(M) % 2, seed)) == ()


def test_clients_that_leave_their_clusters_raise_alarms() -> None:
    concepts = np.arange(M) % 2
    concepts[5], concepts[6] = 0, 2
    swapped, unknown = fitted().drift_alarms(federation(concepts))
    assert (swapped.client, swapped.cluster, swapped.fits) == ("5", 1, 0)
    assert (unknown.client, unknown.cluster, unknown.fits) == ("6", 0, None)
    assert min(swapped.score, unknown.score) > 4.25
    assert str(swapped).startswith("client '5' has left cluster 1: with a loss of ")
    assert str(swapped).endswith("standard deviations off, cluster 0 fits")
    assert str(unknown).endswith("standard deviations off, no cluster fits")


def test_an_alarm_needs_a_reply_and_the_same_clients() -> None:
    concepts = np.arange(M) % 2
    concepts[5] = 0
    silent = DropReplies(federation(concepts), 1.0)
    assert fitted().drift_alarms(silent) == ()
    with pytest.raises(InputError, match="must have the clients of the result"):
        fitted().drift_alarms(Simulation(data.rotated_digits(num_clients=4), NETWORK))
    unlimited = replace(fitted(), loss_limits=None)
    with pytest.raises(InputError, match="no data was held out"):
        unlimited.drift_alarms(silent)


def test_a_client_that_stays_although_nothing_fits_is_named() -> None:
    concepts = np.arange(M) % 2
    concepts[6] = 2
    untrained = replace(LOCAL, lr=1e-9)
    result = adapt(fitted(), federation(concepts), untrained, rounds=0)
    assert moves(result) == {}
    assert result.decision == "No client moved. No cluster fits '6'."
    assert result.history[-1].notes["beyond_reach"] == ["6"]


def test_clients_fine_tune_again_if_they_had_individual_models() -> None:
    concepts = np.arange(M) % 2
    concepts[5] = 0
    after, before = federation(concepts), fitted()
    tuned = replace(before, individual_models=before.client_models + 0.01)
    result = adapt(tuned, after, LOCAL, rounds=2)
    assert [stage.name for stage in result.history[-2:]] == ["ADAPT 1", "TRY_FINE_TUNE"]
    assert result.partition == after.data.truth
    assert result.final_models.shape == before.client_models.shape
    plain = adapt(before, after, LOCAL, rounds=2)
    assert torch.equal(result.models, plain.models)


def test_clusters_without_clients_are_dropped_after_a_while() -> None:
    away = federation(np.where(np.arange(M) % 2 == 1, 2, 0))
    result = adapt(fitted(), away, LOCAL, rounds=1, keep=1)
    assert result.history[-1].notes["empty_for"] == [0, 0, 1]
    result = adapt(result, away, LOCAL, rounds=1, keep=1)
    assert len(result.models) == 2
    assert len(adapt(fitted(), away, LOCAL, rounds=1, keep=0).models) == 2


def test_an_adapted_result_is_saved_and_adapted_further(tmp_path: Path) -> None:
    concepts = np.arange(M) % 2
    away, back = federation(np.where(concepts == 1, 2, 0)), federation(concepts)
    adapted = adapt(fitted(), away, LOCAL, rounds=1)
    loaded = Result.load(adapted.save(tmp_path))
    direct, again = (adapt(r, back, LOCAL, rounds=1) for r in (adapted, loaded))
    assert direct.partition == again.partition == back.data.truth
    assert torch.equal(direct.models, again.models)
    assert adapted.assign(away).labels.tolist() == adapted.labels.tolist()


def test_results_adapt_themselves_and_the_same_seed_gives_the_same() -> None:
    concepts = np.arange(M) % 2
    concepts[[2, 5, 8, 11]] = 2
    after = federation(concepts)
    first, second = (fitted().adapt(after, LOCAL, rounds=1) for _ in range(2))
    assert torch.equal(first.models, second.models)
    assert first.partition == second.partition


def test_clients_that_do_not_reply_stay() -> None:
    concepts = np.arange(M) % 2
    concepts[[4, 5]] = concepts[[5, 4]]
    after = DropByNumber(federation(concepts), {0: [5], 1: [5]})
    result = adapt(fitted(), after, LOCAL, rounds=1)
    assert set(moves(result)) == {"4"}
    nobody = DropReplies(federation(concepts), 1.0)
    with pytest.raises(InputError, match="no client replied"):
        adapt(fitted(), nobody, LOCAL, rounds=1)


def test_moves_need_no_held_out_data() -> None:
    concepts = np.arange(M) % 2
    concepts[5] = 0
    (clients,) = drift_phases(digits(0), concepts[None], TURNS)
    after = Simulation(clients, models.mlp(64, 32, 10), validation=0.0)
    assert adapt(fitted(), after, LOCAL, rounds=1).partition == clients.truth


def test_invalid_arguments_are_refused() -> None:
    same = federation(np.arange(M) % 2)
    with pytest.raises(InputError, match="rounds must not be negative, but is -1"):
        adapt(fitted(), same, LOCAL, rounds=-1)
    with pytest.raises(InputError, match="keep must not be negative, but is -1"):
        adapt(fitted(), same, LOCAL, rounds=1, keep=-1)
    wrong: dict[str, Any]
    usual: dict[str, Any] = {"federation": same, "local": LOCAL}
    for wrong, message in (
        ({"rounds": 1.0}, r"rounds must be an integer, not 1\.0"),
        ({"rounds": None}, "rounds must be an integer, not None"),
        ({"rounds": 1, "keep": True}, "keep must be an integer, not True"),
        ({"rounds": 1, "local": None}, "local must be a LocalTraining, not None"),
        ({"rounds": 1, "aggregation": "median"}, r"such as Median\(\), not 'median'"),
        ({"rounds": 1, "callbacks": "bars"}, "callbacks must be one or several .*, not 'b'"),
        ({"rounds": 1, "callbacks": 1}, "callbacks must be one or several .*, not 1"),
        ({"rounds": 1, "federation": None}, "a federation is needed, .*, not None"),
    ):
        with pytest.raises(InputError, match=message):
            adapt(fitted(), **usual | wrong)
    with pytest.raises(InputError, match="Global has no cluster models to adapt"):
        adapt(FedAvg(local=LOCAL).fit(same), same, LOCAL, rounds=1)
    few = Simulation(data.rotated_digits(num_clients=4), models.mlp(64, 32, 10))
    with pytest.raises(InputError, match="must have the clients of the result"):
        adapt(fitted(), few, LOCAL, rounds=1)


def test_evidence_is_needed_on_all_data_and_not_refuted_by_held_out_data() -> None:
    losses = np.array([[1.0, 0.1], [1.0, 0.1], [0.11, 0.1], [np.nan, np.nan]])
    held_out = np.array([[1.0, 0.1], [0.1, 0.9], [0.11, 0.1], [np.nan, np.nan]])
    evidence = Evidence(losses, held_out, Usual(np.array([0.1, 0.1])))
    labels, misfits = drifted(evidence, np.zeros(4, int))
    assert labels.tolist() == [1, 0, 0, 0]
    assert misfits.tolist() == [False, True, False, False]


def test_unclustered_clients_join_the_cluster_that_fits() -> None:
    losses = np.array([[0.1, 2.0], [2.0, 1.9], [np.nan, np.nan]])
    labels, misfits = drifted(Evidence(losses, losses, Usual(np.full(2, 0.1))), np.full(3, -1))
    assert labels.tolist() == [0, -1, -1]
    assert not misfits.any()


def test_small_new_clusters_need_larger_gains() -> None:
    gains = np.array([0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3])
    assert accept(np.array([0, 0, 0, 0, 1, 1, 2]), gains, 0.5).tolist() == [0] * 4 + [-1] * 3
    assert accept(np.array([0, -1]), np.array([1.2, np.nan]), 0.5).tolist() == [0, -1]


def test_a_new_model_that_suits_those_that_stay_is_no_new_concept() -> None:
    held_out = np.array([0.1, 0.1, 0.12, 0.5, 0.5])[:, None]
    evidence = Evidence(held_out, held_out, Usual(np.array([0.1])))
    new, clients, labels = np.zeros(2, int), np.array([3, 4]), np.zeros(5, int)
    better = np.array([0.02, 0.02, 0.03, 0.1, 0.1])[:, None]
    assert distinct(new, clients, better, labels, evidence).tolist() == [-1, -1]
    other = np.array([2.0, 2.1, 1.9, 0.1, 0.1])[:, None]
    assert distinct(new, clients, other, labels, evidence).tolist() == [0, 0]


class BadTraining(Middleware):
    """Clients that send NaN when they train, or whose training ends in an error."""

    def __init__(self, federation: Federation, clients: list[int], fails: bool) -> None:
        super().__init__(federation)
        self.clients, self.fails = clients, fails

    def ask(self, request: Request[T]) -> Replies[T]:
        replies = self.federation.ask(request)
        if not isinstance(request, Train):
            return replies
        bad = np.isin(replies.clients, self.clients)
        if self.fails and bad.all():
            raise InputError("none of 1 clients replied to train")
        assert isinstance(replies.values, torch.Tensor)
        values = replies.values.masked_fill(torch.from_numpy(bad)[:, None], torch.nan)
        return replace(replies, values=values)


@pytest.mark.filterwarnings("ignore:refused a reply")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("misfits", [[2], [2, 5]])
def test_clients_that_fit_no_cluster_cannot_end_an_adaptation(
    misfits: list[int], fails: bool
) -> None:
    concepts = np.arange(M) % 2
    concepts[misfits] = [3, 2][: len(misfits)]
    bad = BadTraining(federation(concepts), misfits, fails)
    with pytest.warns(SrfcaWarning, match="no new cluster"):
        result = adapt(fitted(), bad, LOCAL, rounds=1)
    assert result.history[-1].notes["misfits"] == [str(client) for client in misfits]
    assert result.partition.num_clusters == 2
    assert bool(result.models.isfinite().all())


def test_an_adaptation_aggregates_as_the_run_did() -> None:
    same = federation(np.arange(M) % 2)
    attacked = Attacked(same, ATTACKS["reverse-scaling"], [4])
    usual = fitted().adapt(attacked, LOCAL, rounds=2)
    trimmed = fitted().adapt(attacked, LOCAL, rounds=2, aggregation=TrimmedMean(0.05, at_least=1))
    mean = fitted().adapt(attacked, LOCAL, rounds=2, aggregation=Mean())
    assert torch.equal(usual.models, trimmed.models)
    assert not torch.equal(usual.models, mean.models)
    plain = replace(fitted(), parameters={**fitted().parameters, "trim": 0.0})
    assert torch.equal(plain.adapt(attacked, LOCAL, rounds=2).models, mean.models)
