"""Methods when replies are missing: they end, with the models of the clients that replied."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from srfca import SRFCA, ClientData, FedAvg, InputError, Local, LocalTraining, Partition, Simulation
from srfca.data import rotated_digits
from srfca.errors import SrfcaWarning
from srfca.federation import Federation, Middleware, Replies, Request, Shares, Train
from srfca.federation.replies import T
from srfca.methods import (
    CFL,
    IFCA,
    MOCHA,
    PACFL,
    Ditto,
    FedEM,
    FedGroup,
    FedSoft,
    FeSEM,
    Hierarchical,
    HypCluster,
    Method,
    OneShotIFCA,
    OneShotKMeans,
    Run,
)
from srfca.methods._common.init import random_models
from srfca.methods._common.rounds import train_locally
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.methods.helpers import DropByNumber, train

M = 8
DATA = examples.regression([20] * M, clusters=2)
KEY = Key(0, "test")
LOCAL = LocalTraining(steps=20, local_steps=5, batch_size=10, lr=0.05)
ALWAYS = range(60)
"""More requests than any of these runs sends."""


def dropping(
    drops: Mapping[int, Collection[int]], data: ClientData = DATA, **options: Any
) -> DropByNumber:
    """Return regressions whose clients do not reply to some requests, by number."""
    model = linear(data.train.x.shape[1])
    return DropByNumber(Simulation(data, model, device="cpu", **options), drops)


def drops(requests: int, clients: int) -> st.SearchStrategy[dict[int, list[int]]]:
    """Draw the clients that do not reply, by the number of the request."""
    missing = st.lists(st.integers(0, M - 1), max_size=clients)
    return st.dictionaries(st.integers(0, requests), missing, max_size=5)


@settings(max_examples=25)
@given(drops(12, 2))
def test_sr_fca_ends_whatever_is_missing(drops: dict[int, list[int]]) -> None:
    federation = dropping(drops)
    result = SRFCA(local=LOCAL, threshold="45%", merge_threshold="auto").fit(federation, seed=0)
    assert result.models.isfinite().all()
    answered = [client for client in range(M) if client not in federation.lost]
    assert DATA.truth is not None
    assert Partition(result.labels[answered]) == Partition(DATA.truth.labels[answered])
    noted = [reply for stage in result.history for reply in stage.notes.get("missing", [])]
    assert {int(reply["client"]) for reply in noted} <= federation.lost
    assert all(reply["reason"] == "dropped" for reply in noted)


@settings(max_examples=25)
@given(drops(8, 3))
def test_ifca_ends_whatever_is_missing(drops: dict[int, list[int]]) -> None:
    method = IFCA(k=2, start="distant", local=LOCAL)
    expected = method.fit(Simulation(DATA, linear(4)), seed=0)
    after_start = {number + 3: clients for number, clients in drops.items()}
    result = method.fit(dropping(after_start), seed=0)
    assert result.models.isfinite().all()
    if not any(drops.values()):
        assert torch.equal(result.models, expected.models)


METHODS: dict[str, Method] = {
    "CFL": CFL(gamma_max=0.5, warm_up=1, eps1="90%", eps2="1%", local=LOCAL),
    "Ditto": Ditto(local=LOCAL),
    "FedEM": FedEM(k=2, local=LOCAL),
    "FedGroup": FedGroup(k=2, pretrained=1.0, pretrain_steps=10, local=LOCAL),
    "FedSoft": FedSoft(k=2, local=LOCAL),
    "FeSEM": FeSEM(k=2, local=LOCAL),
    "Hierarchical": Hierarchical(k=2, global_rounds=1, local=LOCAL),
    "HypCluster": HypCluster(k=2, local=LOCAL),
    "IFCA": IFCA(k=2, start="clients", local=LOCAL),
    "HypCluster, drawn": HypCluster(k=2, centers="drawn", local=LOCAL),
    "IFCA, distant": IFCA(k=2, start="distant", local=LOCAL),
    "MOCHA": MOCHA(local=LOCAL),
    "ONE_SHOT + IFCA": OneShotIFCA(threshold="45%", local=LOCAL),
    "one-shot k-means": OneShotKMeans(k=2, local=LOCAL),
    "PACFL": PACFL(k=2, rank=2, local=LOCAL),
}


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=15)
@given(drops=drops(8, 3))
def test_other_methods_end_whatever_is_missing(name: str, drops: dict[int, list[int]]) -> None:
    federation = dropping(drops)
    result = METHODS[name].fit(federation, seed=0)
    assert result.models.isfinite().all()
    for client, label in enumerate(result.labels):
        assert label >= 0 or client in federation.lost
    if not federation.lost:
        expected = METHODS[name].fit(Simulation(DATA, linear(4), device="cpu"), seed=0)
        assert torch.equal(result.models, expected.models)


@pytest.mark.parametrize(
    ("method", "mu"),
    [
        (FedEM(k=1, start="random"), 0.0),
        (FedSoft(k=1, start="random", mu=0.1), 0.1),
    ],
)
@given(lost=st.sets(st.integers(0, M - 1), max_size=M - 1))
@settings(max_examples=10)
def test_a_mean_is_over_the_clients_that_replied(method: Method, mu: float, lost: set[int]) -> None:
    """One round with one component, or one center, is a round of FedAvg."""
    local = LocalTraining(steps=2, local_steps=2, batch_size=None, lr=0.05)
    result = replace(method, local=local).fit(dropping(dict.fromkeys(ALWAYS, lost)))
    complete = dropping({})
    starts = random_models(Run(complete, 0), 1, "start").repeat(M, 1)
    rows = train(complete, starts, range(M), replace(local, mu=mu), KEY)
    expected = rows[[client for client in range(M) if client not in lost]].mean(0)
    torch.testing.assert_close(result.models[0], expected)


def test_fesem_places_clients_without_a_first_reply_at_the_end() -> None:
    """Trained from some center, a network would stay near it."""
    digits = rotated_digits(num_clients=16, rotations=2)
    federation = DropByNumber(Simulation(digits, mlp(64, 32, 10)), {0: [1, 2, 3]})
    local = LocalTraining(steps=60, local_steps=5, batch_size=10, lr=0.5)
    assert FeSEM(k=2, local=local).fit(federation).partition == digits.truth


def test_fedsoft_keeps_earlier_replies_and_places_clients_that_never_reply() -> None:
    method = FedSoft(k=2, local=LOCAL)
    complete = dropping({})
    method.fit(complete)
    last = max(
        number for number, request in enumerate(complete.requests) if isinstance(request, Shares)
    )
    once = method.fit(dropping({last: [1, 3]}))
    assert once.partition == DATA.truth
    never = method.fit(dropping({number: [1] for number in range(last + 3)}))
    assert never.history[-1].name == "PLACE"
    assert never.partition == DATA.truth
    assert never.individual_models is not None
    assert torch.equal(never.individual_models[1], never.models[never.labels[1]])


def test_a_client_that_never_replies_gets_the_last_model_of_ditto() -> None:
    result = Ditto(local=LOCAL).fit(dropping({number: [1] for number in ALWAYS}))
    assert result.individual_models is not None
    assert torch.equal(result.individual_models[1], result.models[0])


def test_a_client_that_never_replies_is_at_the_mean_of_mocha_and_moves_no_other() -> None:
    """With the relationship ``mean``, the others end where they end without it."""
    method = MOCHA(relationship="mean", local=LOCAL)
    result = method.fit(dropping({number: [M - 1] for number in ALWAYS}))
    fewer = method.fit(dropping({}, examples.regression([20] * (M - 1), clusters=2)))
    torch.testing.assert_close(result.models[:-1], fewer.models)
    torch.testing.assert_close(result.models[-1], fewer.models.mean(0))


@pytest.mark.parametrize("name", ["CFL", "FedGroup", "Hierarchical", "one-shot k-means", "PACFL"])
def test_clients_missing_when_clusters_are_formed_are_placed_as_newcomers(name: str) -> None:
    """Clients 1 and 6 do not reply to the request that the clusters are formed from."""
    number = 1 if name in ("CFL", "Hierarchical") else 0
    result = METHODS[name].fit(dropping({number: [1, 6]}), seed=0)
    assert result.history[-1].name == "PLACE"
    assignment = result.assign(Simulation(DATA, linear(4), device="cpu"), [1, 6])
    assert result.labels[[1, 6]].tolist() == assignment.labels.tolist()


@pytest.mark.parametrize("name", ["FedGroup", "FeSEM", "Hierarchical", "one-shot k-means", "PACFL"])
def test_clusters_are_not_formed_from_too_few_replies(name: str) -> None:
    all_but_one = {number: range(1, M) for number in range(4)}
    with pytest.raises(InputError, match="only 1 clients replied, but 2 or more are needed"):
        METHODS[name].fit(dropping(all_but_one), seed=0)


@pytest.mark.parametrize("replied", [[], [2]])
@pytest.mark.parametrize("threshold", ["auto", 1.0, "45%"])
def test_sr_fca_needs_two_replies(replied: list[int], threshold: float | str) -> None:
    missing = [client for client in range(M) if client not in replied]
    for method in (
        SRFCA(local=LOCAL, threshold=threshold),
        OneShotIFCA(local=LOCAL, threshold=threshold),
    ):
        with pytest.raises(InputError, match="clients replied, but 2 or more are needed"):
            method.fit(dropping({0: missing}))


def test_ifca_needs_a_reply() -> None:
    with pytest.raises(InputError, match="only 0 clients replied, but 1 or more are needed"):
        IFCA(k=2, start=torch.zeros(2, 5), local=LOCAL).fit(
            dropping({number: range(M) for number in ALWAYS})
        )


def test_placed_clients_keep_clusters_models_and_limits_together() -> None:
    """Client 0 is placed last; its cluster, now with the first client, becomes cluster 0."""
    complete = METHODS["one-shot k-means"].fit(dropping({}))
    result = METHODS["one-shot k-means"].fit(dropping({0: [0]}))
    assert result.history[-1].name == "PLACE"
    assert result.labels.tolist() == complete.labels.tolist() == result.partition.labels.tolist()
    assert result.loss_limits is not None
    assignment = result.assign(Simulation(DATA, linear(4), device="cpu"))
    assert assignment.labels.tolist() == result.labels.tolist()
    assert torch.cdist(result.models, complete.models).argmin(1).tolist() == [0, 1]


def test_a_missing_model_is_not_counted() -> None:
    result = FedAvg(local=replace(LOCAL, steps=5)).fit(dropping({0: [1, 4, 6]}))
    assert (result.budget.models_up, result.budget.models_down) == (M - 3, M)
    missing = result.history[0].notes["missing"]
    assert [reply["client"] for reply in missing] == ["1", "4", "6"]
    assert {reply["request"] for reply in missing} == {"train"}


class Diverge(Middleware):
    """Make what one client trains infinite, from one round of some trainings on."""

    def __init__(
        self, federation: Federation, client: int, round: int = 0, purpose: str = ""
    ) -> None:
        super().__init__(federation)
        self.client, self.round, self.purpose = client, round, purpose

    def ask(self, request: Request[T]) -> Replies[T]:
        replies = self.federation.ask(request)
        chosen = isinstance(request, Train) and request.key.purpose.startswith(self.purpose)
        if chosen and isinstance(request, Train) and request.key.round >= self.round:
            assert isinstance(replies.values, torch.Tensor)
            replies.values[replies.clients == self.client] = torch.inf
        return replies


REFUSED = "refused a reply of client '3': a model or gradient that is infinite or NaN"


@pytest.mark.parametrize("method", [FedAvg(local=LOCAL), Ditto(local=LOCAL), MOCHA(local=LOCAL)])
def test_methods_go_without_a_client_that_diverges(method: Method) -> None:
    with pytest.warns(SrfcaWarning, match=REFUSED):
        result = method.fit(Diverge(dropping({0: [3]}), client=3, round=2))
    assert result.models.isfinite().all()


def test_sr_fca_goes_without_a_local_model_that_diverges() -> None:
    """ONE_SHOT goes without client 3; when it trains again, its model is infinite."""
    resampling = SRFCA(local=LOCAL, threshold="45%", merge_threshold=0.0, resample=True)
    without = dropping({0: [3]})
    assert resampling.fit(without).models.isfinite().all()
    assert without.lost == {3}
    with pytest.warns(SrfcaWarning, match=REFUSED):
        result = resampling.fit(Diverge(dropping({0: [3]}), client=3, purpose="resample"))
    assert result.models.isfinite().all()
    run = Run(Diverge(dropping({0: [3], 1: [5]}), client=3))
    assert train_locally(run, LOCAL, KEY).clients.tolist() == [0, 1, 2, 4, 5, 6, 7]
    with pytest.warns(SrfcaWarning, match=REFUSED):
        assert train_locally(run, LOCAL, KEY).clients.tolist() == [0, 1, 2, 4, 6, 7]


@pytest.mark.parametrize("method", [Local(local=LOCAL), SRFCA(local=LOCAL, threshold="45%")])
def test_local_training_that_diverges_for_half_of_the_clients_is_an_error(method: Method) -> None:
    federation: Federation = dropping({0: [5]})
    for client in (0, 1, 3, 6):
        federation = Diverge(federation, client=client)
    with pytest.raises(InputError, match=r"local training diverged for client '0' and 3 more: "):
        method.fit(federation)


def test_federated_training_that_diverges_is_an_error_when_a_reply_was_missing() -> None:
    with pytest.raises(InputError, match="federated training diverged for cluster 0"):
        FedAvg(local=LocalTraining(steps=50, lr=100.0)).fit(dropping({0: [1]}))


def test_sr_fca_leaves_a_client_without_a_reply_unclustered_where_none_are_alike() -> None:
    data = examples.regression([20] * 6, clusters=6)
    complete = SRFCA(local=LOCAL).fit(Simulation(data, linear(4), device="cpu"), seed=0)
    assert complete.partition.num_clusters == 6
    result = SRFCA(local=LOCAL, distance="l2").fit(dropping({0: [2]}, data), seed=0)
    assert result.labels.tolist() == [0, 1, -1, 2, 3, 4]
    assert torch.equal(result.models, complete.models[[0, 1, 3, 4, 5]])


def test_sr_fca_trains_all_clients_alone_after_a_short_one_shot_where_none_are_alike() -> None:
    data = examples.regression([20] * 6, clusters=6)
    short = SRFCA(local=LOCAL, one_shot_steps=15, distance="l2")
    first = dropping({0: [2]}, data)
    short.fit(first, seed=0)
    alone = next(
        number
        for number, request in enumerate(first.requests)
        if isinstance(request, Train) and request.key.purpose == "alone"
    )
    result = short.fit(dropping({0: [2], alone: [4]}, data), seed=0)
    assert result.labels.tolist() == [0, 1, 2, 3, -1, 4]
    complete = Run(Simulation(data, linear(4), device="cpu"))
    expected = train_locally(complete, LOCAL, Key(0, "alone")).rows
    assert torch.equal(result.models, expected[[0, 1, 2, 3, 5]])
    assert [stage.name for stage in result.history[-2:]] == ["ALONE", "DECIDE"], "nobody is placed"


def test_sr_fca_separates_varying_clients_without_those_that_did_not_reply() -> None:
    data, places = examples.on_a_line(0.5, 0)
    federation = dropping({0: [2, 7], 1: [2, 7], 2: [2, 7]}, data, validation=0.25)
    local = LocalTraining(steps=60, local_steps=5, batch_size=10, lr=0.02)
    result = SRFCA(local=local).fit(federation, seed=0)
    first = result.history[0]
    assert "2 clusters of largest separation" in first.notes["reason"]
    assert [client for client, label in enumerate(first.labels) if label < 0] == [2, 7]
    assert result.partition.num_clusters == 2
    assert (result.labels >= 0).all()
    high = int(np.argmax([places[result.labels == c].mean() for c in range(2)]))
    assert places[2] > 0.5
    assert result.labels[2] == high
