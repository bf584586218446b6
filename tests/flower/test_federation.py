"""Every request and every method over Flower: the same as in a simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context

from srfca import SRFCA, ClientData, InputError, progress
from srfca import models as models_of
from srfca.federation import (
    BalancedLosses,
    BootstrapLosses,
    ClassCounts,
    Collect,
    Coordinates,
    DataMoments,
    Descent,
    Gradients,
    Losses,
    LossMoments,
    Mixture,
    OutputMoments,
    Outputs,
    Personal,
    Posterior,
    Request,
    Round,
    Scores,
    SharedSamples,
    Shares,
    Split,
    Subsample,
    Subspaces,
    Traffic,
    Train,
    num_classes,
)
from srfca.flower.records import ROWS, arrays_of
from srfca.methods import IFCA, Method, all_methods
from srfca.models import mlp
from srfca.random import Key
from srfca.testing.method_case import tensors_of
from tests import examples
from tests.flower.setup import (
    DATA,
    EVERYONE,
    LOCAL,
    SR_FCA,
    M,
    make_federation,
    make_grid,
    make_simulation,
    train_request,
)

TWO_LAYERS = mlp(6, 5, 4)
"""A body and a head, for methods with personal layers."""
PARAMETERS: dict[str, dict[str, Any]] = {
    "global": {"participation": 0.5},
    "ifca": {"start": "clients"},
    "pacfl": {"rank": 2, "threshold": 40.0},
}
"""Of methods whose defaults do not fit this small federation."""
MORE: list[Method] = [
    SR_FCA,
    SRFCA(local=LOCAL, threshold=1.2, all_pairs=0, distance="one_sided_loss", resample=True),
    SRFCA(local=LOCAL, distance="balanced_cross_loss"),
    SRFCA(local=LOCAL, distance="presence_balanced_cross_loss", threshold="45%", samples=20),
    SRFCA(local=LOCAL, distance="l2", exchange="gradients", final_steps=4, fine_tune_steps=10),
    IFCA(k=2, local=LOCAL, exchange="gradients", start="distant"),
]


def make_method(method: type[Method]) -> Method:
    """Return a registered method with parameters for this federation."""
    parameters: dict[str, Any] = {"local": LOCAL, **PARAMETERS.get(method.key, {})}
    parameters |= {"k": 2} if method.needs_k else {}
    parameters |= {"truth": DATA.truth} if method.needs_truth else {}
    return method(**parameters)


@pytest.mark.parametrize(
    "method", [*map(make_method, all_methods()), *MORE], ids=lambda method: method.name
)
def test_every_method_gives_the_result_of_a_simulation(method: Method) -> None:
    federation = make_federation(make_grid(model=TWO_LAYERS), model=TWO_LAYERS)
    simulation = make_simulation(TWO_LAYERS)
    result, expected = method.fit(federation, seed=1), method.fit(simulation, seed=1)
    assert result.partition == expected.partition
    assert [stage.labels for stage in result.history] == [s.labels for s in expected.history]
    for stage, expected_stage in zip(result.history, expected.history, strict=True):
        assert stage.loss == pytest.approx(expected_stage.loss, abs=1e-5)
        assert stage.accuracy == pytest.approx(expected_stage.accuracy, abs=1e-9)
        assert stage.budget == expected_stage.budget
    tensors, expected_tensors = tensors_of(result), tensors_of(expected)
    if expected.personal is not None:  # a simulation collects what real clients keep
        expected_tensors.pop("individual_models")
    assert tensors.keys() == expected_tensors.keys()
    for name, tensor in tensors.items():
        assert torch.allclose(tensor, expected_tensors[name], atol=1e-4), name
    scores, expected_scores = result.scores(federation), expected.scores(simulation)
    assert torch.allclose(scores.loss, expected_scores.loss, atol=1e-5)
    assert scores.accuracy is not None
    assert expected_scores.accuracy is not None
    assert torch.equal(scores.accuracy, expected_scores.accuracy)
    assert torch.equal(scores.num_samples, expected_scores.num_samples)
    assert not federation.missing


CLIENTS = np.array([5, 1, 5, 2])
"""A client may be asked for several entries."""
SHARES = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
"""Class shares of three models; the losses of the last are unknown."""


def models(count: int) -> torch.Tensor:
    return torch.stack([make_simulation().initial_model(seed) for seed in range(count)])


def mixture(entries: int) -> Mixture:
    weights = torch.linspace(0.1, 0.9, entries)
    return Mixture(models(2), torch.stack([weights, 1 - weights], dim=1))


def requests() -> dict[str, Request[Any]]:
    posterior = Posterior(mixture(4), torch.tensor([0, 1, 1, 0]))
    descent = Descent(anchors=models(4).flip(0), corrections=0.1 * models(4))
    proximal, key = replace(LOCAL, mu=0.5), Key(3, "demo")
    return {
        "train": Train(CLIENTS, models(4), LOCAL, key),
        "train, algorithm": Train(CLIENTS, models(4), proximal, key, descent),
        "train, posterior": Train(CLIENTS, models(4), LOCAL, key, Descent(posterior=posterior)),
        "gradients": Gradients(CLIENTS, models(4)),
        "losses": Losses(CLIENTS, models(3)),
        "losses, validation": Losses(CLIENTS, models(3), "validation"),
        "losses, test": Losses(CLIENTS, models(3), "test"),
        "losses, subsample": Losses(CLIENTS, models(3), subsample=Subsample(7, 1)),
        "losses, validation subsample": Losses(CLIENTS, models(3), "validation", Subsample(2, 1)),
        "losses, test subsample": Losses(CLIENTS, models(3), "test", Subsample(7, 1)),
        "class counts": ClassCounts(CLIENTS),
        "class counts, presence": ClassCounts(CLIENTS, presence=True),
        "balanced losses": BalancedLosses(CLIENTS, models(3), SHARES),
        "balanced losses, subsample": BalancedLosses(CLIENTS, models(3), SHARES, Subsample(20, 1)),
        "moments of losses": LossMoments(CLIENTS, models(2), torch.ones(2).double()),
        "moments of outputs": OutputMoments(CLIENTS, models(2), ("train", "validation")),
        "resamples": BootstrapLosses(CLIENTS, models(3), replicates=9),
        "resamples, train": BootstrapLosses(CLIENTS, models(2), ("train",), 9, 4),
        "sums of data": DataMoments(CLIENTS, ("train", "validation")),
        "scores": Scores(CLIENTS, models(4)),
        "scores, validation": Scores(CLIENTS, models(4), "validation"),
        "scores, train": Scores(CLIENTS, models(4), "train"),
        "scores, mixture": Scores(CLIENTS, mixture(4)),
        "shares": Shares(CLIENTS, models(3)),
        "shares, mixture": Shares(CLIENTS, mixture(4)),
        "subspaces": Subspaces(CLIENTS, 2),
        "shared samples": SharedSamples(CLIENTS, 4, seed=1),
        "shared inputs": SharedSamples(CLIENTS, 40, targets=False),
        "outputs": Outputs(CLIENTS, models(4), torch.ones(3, 6, dtype=torch.float64)),
    }


def test_a_request_may_be_empty() -> None:
    federation, nobody = make_federation(), np.zeros(0, int)
    messages = federation.traffic.messages
    assert federation.ask(Losses(EVERYONE, models(1)[:0])).values.shape == (M, 0)
    assert federation.ask(Losses(nobody, models(2))).values.shape == (0, 2)
    assert federation.ask(Train(nobody, models(1)[:0], LOCAL, Key(0, "x"))).values.shape == (0, 28)
    assert federation.ask(Gradients(nobody, models(1)[:0])).values.shape == (0, 28)
    assert federation.ask(Shares(nobody, models(2))).values.shape == (0, 2)
    assert len(federation.ask(Scores(nobody, models(1)[:0])).values) == 0
    assert federation.ask(Subspaces(nobody, 2)).values.shape == (0, 6, 2)
    assert federation.ask(SharedSamples(nobody, 3)).values.shape == (0, 3, 7)
    assert federation.ask(Outputs(nobody, models(1)[:0], torch.ones(2, 6))).values.shape == (
        0,
        2,
        4,
    )
    assert federation.ask(ClassCounts(nobody)).values.shape == (0, 4)
    assert federation.ask(BalancedLosses(nobody, models(3), SHARES)).values.shape == (0, 3)
    assert federation.traffic.messages == messages


@pytest.mark.parametrize("name", requests())
def test_every_request_gets_the_replies_of_a_simulation(name: str) -> None:
    request = requests()[name]
    replies = make_federation().ask(request)
    expected = make_simulation().ask(request)
    assert np.array_equal(replies.clients, CLIENTS)
    assert not replies.missing
    if isinstance(request, Scores):
        assert torch.allclose(replies.values.loss, expected.values.loss.double(), atol=1e-6)
        assert torch.allclose(replies.values.accuracy, expected.values.accuracy.double())
        assert torch.equal(replies.values.num_samples, expected.values.num_samples)
    else:
        assert torch.allclose(replies.values, expected.values, atol=1e-5, equal_nan=True)
        assert replies.values.dtype == expected.values.dtype


def test_a_round_is_not_answered() -> None:
    federation = make_federation()
    assert not federation.answers_rounds
    w0 = federation.initial_model(0).unsqueeze(0)
    with pytest.raises(InputError, match="a Flower federation does not answer 'round'"):
        federation.ask(Round(EVERYONE, w0, np.zeros(M, int), LOCAL, Key(0, "x")))
    with pytest.raises(InputError, match="clients are numbered 0 to 7"):
        federation.ask(Losses(np.array([8]), w0))


def test_what_clients_keep_is_never_collected() -> None:
    federation = make_federation()
    messages = federation.traffic.messages
    personal = Personal(Coordinates(((24, 28),)), 0, "x")
    replies = federation.ask(Collect(EVERYONE, personal))
    assert replies.values.shape == (0, 4)
    assert replies.missing == dict.fromkeys(range(M), "stays with the client")
    assert federation.traffic.messages == messages


def test_a_request_is_one_message_and_a_row_is_sent_once() -> None:
    grid = make_grid()
    federation = make_federation(grid)
    assert federation.traffic.messages == M
    result = SR_FCA.fit(federation, seed=1)
    kinds = [kind for _, kind in grid.log[M:]]
    rounds = 1 + LOCAL.rounds  # ONE_SHOT, TRIMMED_MEAN_GD
    assert kinds.count("train.train") == M * rounds
    assert kinds.count("query.losses") == 2 * M  # all pairs; all cluster models, both splits
    assert kinds.count("query.loss_moments") == M  # what newcomers are compared with
    assert len(kinds) == M * (rounds + 3)
    sent = [len(arrays_of(message.content, ROWS)) for message in grid.sent.values()]
    assert sum(sent) == result.budget.models_down
    traffic = [stage.notes["traffic"] for stage in result.history if "traffic" in stage.notes]
    assert sum(stage["messages"] for stage in traffic) == federation.traffic.messages - M


def test_traffic_of_a_reply_is_all_since_the_last_request() -> None:
    grid = make_grid(receive=lambda module, context: None)
    federation = make_federation(grid)
    w0 = federation.initial_model(0)
    replies = federation.ask(train_request(w0))
    assert replies.traffic == federation.traffic
    assert replies.traffic.messages == 2 * M, "introductions are included"
    before = federation.traffic
    federation.keep(w0.expand(M, -1))
    replies = federation.ask(Losses(EVERYONE, w0.unsqueeze(0)))
    assert replies.traffic == federation.traffic - before
    assert replies.traffic.messages == 2 * M, "final models are included"
    assert federation.ask(Losses(EVERYONE, w0.unsqueeze(0))).traffic == Traffic()


def test_progress_is_reported_in_local_steps() -> None:
    federation, steps = make_federation(), list[int]()
    with progress.reporting_to(steps.append):
        federation.ask(train_request(federation.initial_model(0)))
    assert steps == [M * LOCAL.local_steps]


def test_losses_are_asked_for_once_until_they_are_forgotten() -> None:
    federation, simulation = make_federation(), make_simulation()
    rows, clients = models(3), np.array([1, 5])
    splits: tuple[Split, ...] = ("train", "validation", "test")
    for split in splits:
        losses = federation.ask(Losses(clients, rows, split)).values
        expected = simulation.ask(Losses(clients, rows, split)).values
        assert torch.allclose(losses, expected, atol=1e-6)
    messages = federation.traffic.messages
    federation.ask(Losses(clients[1:], rows[:2]))
    federation.ask(Scores(clients, rows[:2], "validation"))
    assert federation.traffic.messages == messages
    federation.ask(Losses(np.array([4, 5]), rows))
    assert federation.traffic.messages == messages + 1
    federation.forget_losses()
    federation.ask(Losses(np.array([4, 5]), rows))
    assert federation.traffic.messages == messages + 3
    request = Scores(np.array([2]), rows[:1], "train")
    accuracy = federation.ask(request).values.accuracy
    assert accuracy is not None
    assert torch.equal(accuracy, torch.as_tensor(simulation.ask(request).values.accuracy))


def test_balanced_losses_and_class_counts_are_asked_for_once() -> None:
    federation, clients = make_federation(), np.array([1, 5])
    rows, messages = models(3), federation.traffic.messages
    for _ in range(2):
        federation.ask(ClassCounts(clients))
        federation.ask(BalancedLosses(clients, rows, SHARES))
    federation.ask(BalancedLosses(clients, rows[1:], SHARES[1:], Subsample(1000, 3)))
    held_out = federation.ask(Losses(clients, rows, "validation")).values
    assert federation.traffic.messages == messages + 4, "held-out losses came with balanced ones"
    expected = make_simulation().ask(Losses(clients, rows, "validation")).values
    assert torch.allclose(held_out, expected, atol=1e-6)
    federation.ask(ClassCounts(clients, presence=True))
    federation.ask(BalancedLosses(clients, rows, SHARES, Subsample(7, 3)))
    federation.ask(BalancedLosses(clients, rows, SHARES.flip(1)))
    assert federation.traffic.messages == messages + 10
    federation.forget_losses()
    federation.ask(ClassCounts(clients))
    federation.ask(BalancedLosses(clients, rows, SHARES))
    assert federation.traffic.messages == messages + 14


def test_models_beyond_numbers_are_not_sent() -> None:
    federation, rows = make_federation(), models(2)
    rows[1] = torch.nan
    losses = federation.ask(BalancedLosses(EVERYONE, rows, SHARES[:2])).values
    assert bool((losses[:, 1] == torch.inf).all())
    assert bool(losses[:, 0].isfinite().all())


def test_clients_without_classes_are_refused() -> None:
    data = examples.regression([20] * M)
    linear = models_of.linear(4)

    def load(context: Context) -> ClientData:
        return data.select(int(context.node_config["partition-id"]))

    federation = make_federation(make_grid(model=linear, data=load), model=linear)
    assert num_classes(federation) is None
    with pytest.raises(
        InputError, match=r"class counts need clients that classify .* \[0\] classes"
    ):
        federation.ask(ClassCounts(EVERYONE))
    assert num_classes(make_federation()) == 4


def test_shapes_are_checked_before_anything_is_sent() -> None:
    federation = make_federation()
    messages, zero = federation.traffic.messages, np.array([0])
    with pytest.raises(InputError, match="rows of length 28"):
        federation.ask(Losses(zero, torch.zeros(2, 5)))
    with pytest.raises(InputError, match="1 rows of length 28"):
        federation.ask(Gradients(zero, torch.zeros(2, 28)))
    with pytest.raises(InputError, match=r"class shares of shape \(3, 4\), not \(3, 3\)"):
        federation.ask(BalancedLosses(zero, torch.zeros(3, 28), SHARES[:, :3]))
    nothing: Any = "nothing"
    with pytest.raises(InputError, match="no nothing data"):
        federation.ask(Losses(zero, torch.zeros(2, 28), nothing))
    with pytest.raises(InputError, match=r"weights of a mixture must have the shape \(1, 2\)"):
        federation.ask(Scores(zero, Mixture(torch.zeros(2, 28), torch.ones(1, 3))))
    with pytest.raises(InputError, match="rank must be from 1 to 6, not 7"):
        federation.ask(Subspaces(zero, 7))
    personal = Personal(Coordinates(((0, 4),)), 0, "x")
    with pytest.raises(InputError, match="no client has personal coordinates of the training 'x'"):
        federation.ask(Scores(zero, torch.zeros(1, 28), "test", personal))
    anchors = Descent(anchors=torch.zeros(2, 28))
    with pytest.raises(InputError, match="'anchors' of the local algorithm 'descent' must have"):
        federation.ask(Train(zero, torch.zeros(1, 28), LOCAL, Key(0, "x"), anchors))
    assert federation.traffic.messages == messages
    half = Mixture(torch.zeros(2, 28), torch.full((1, 2), 0.5))
    request = Scores(np.array([3]), half, "test")
    loss = make_simulation().ask(request).values.loss
    assert torch.allclose(federation.ask(request).values.loss, loss)


def test_models_that_are_not_finite_are_not_sent() -> None:
    federation = make_federation()
    rows = models(M)
    rows[3, 0] = torch.nan
    replies = federation.ask(train_request(rows))
    assert replies.missing == {3: "not sent: starts are infinite or NaN"}
    assert replies.values.shape == (M - 1, 28)
    reason = "not sent: models are infinite or NaN"
    assert federation.ask(Gradients(EVERYONE, rows)).missing == {3: reason}
    assert federation.ask(Shares(EVERYONE, rows)).missing == dict.fromkeys(range(M), reason)
    uniform = Mixture(rows, torch.full((M, M), 1 / M))
    assert federation.ask(Scores(EVERYONE, uniform)).missing == dict.fromkeys(range(M), reason)
    for split in ("validation", "test"):
        scores = federation.ask(Scores(EVERYONE, rows, split))
        assert not scores.missing, "the loss of such a model is known to be NaN"
        assert scores.values.loss.isnan().tolist() == [client == 3 for client in range(M)]
    losses = federation.ask(Losses(EVERYONE, rows))
    assert not losses.missing
    assert losses.values.isnan().all(0).tolist() == [client == 3 for client in range(M)]
    with pytest.raises(InputError, match="none of 8 clients replied to train: not sent: starts"):
        federation.ask(train_request(torch.full((28,), torch.inf)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_clients": 0}, "num_clients must be at least 1, not 0"),
        ({"min_clients": 9}, "min_clients must be from 1 to 8"),
        ({"timeout": 0}, "timeout must be positive"),
        ({"previous": [None]}, "give num_clients or previous clients, not both"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_federation(**options)


def test_a_federation_describes_itself() -> None:
    federation = make_federation()
    assert repr(federation) == "FlowerFederation(8 clients, P = 28)"
    assert federation.fingerprint() == ""
    assert federation.layers == make_simulation().layers
    assert torch.equal(federation.sizes, make_simulation().sizes)
    assert federation.splits == make_simulation().splits
