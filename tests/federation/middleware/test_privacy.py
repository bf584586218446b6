"""Private clients: what they send is bounded, noisy, and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srfca import SRFCA, ClientData, FedAvg, InputError, LocalTraining, Result, Simulation
from srfca.federation import (
    BootstrapLosses,
    ClassCounts,
    Coordinates,
    Federation,
    Gradients,
    Losses,
    Middleware,
    Privacy,
    Private,
    Replies,
    Request,
    Scores,
    Shares,
    Train,
)
from srfca.methods import IFCA, Run
from srfca.methods.adaptation import adapt
from srfca.models import mlp
from srfca.random import Key
from tests import examples
from tests.methods.helpers import DIGITS, digits

pytest.importorskip("dp_accounting")

LOCAL = LocalTraining(steps=6, local_steps=2, batch_size=10, lr=0.5)
PRIVACY = Privacy(clip_update=0.2, update_noise=0.1, clip_loss=1.0, loss_noise=0.01)
EVERYONE = np.arange(4)


def clients(seed: int = 0) -> Simulation:
    """Four clients with classes; the last one's data depend on the seed."""
    same, other = (examples.classification([30] * 4, seed=s) for s in (0, seed))
    train = [*(same.train.of(i) for i in range(3)), other.train.of(3)]
    assert same.test is not None
    assert other.test is not None
    test = [*(same.test.of(i) for i in range(3)), other.test.of(3)]
    return Simulation(ClientData.from_arrays(train, test), mlp(6, 5, 3), validation=0.2)


def requests(federation: Federation, index: np.ndarray = EVERYONE) -> dict[str, Request[Any]]:
    w0 = federation.initial_model(0)
    models = torch.stack([w0, w0 + 0.1, w0 - 0.3])
    rows = w0.expand(len(index), -1)
    return {
        "train": Train(index, rows, LOCAL, Key(0, "x", 1)),
        "personal": Train(index, rows, LOCAL, Key(0, "y"), personal=Coordinates(((0, 5),))),
        "gradients": Gradients(index, rows),
        "losses": Losses(index, models),
        "held-out losses": Losses(index, models, "validation"),
        "scores": Scores(index, rows, "validation"),
        "shares": Shares(index, models),
    }


NAMES = list(requests(clients()))


def numbers(replies: Replies[Any]) -> torch.Tensor:
    """Return all numbers that each client has sent: ``[c, n]``."""
    values = replies.values
    if isinstance(values, torch.Tensor):
        return values.double()
    return torch.stack([values.loss, values.accuracy], dim=1).double()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_other_data_change_a_reply_by_at_most_the_diameter(name: str, noise: float) -> None:
    """The sensitivity, in the units of the noise; the noise of the same question is the same."""
    privacy = Privacy(clip_update=0.2, update_noise=noise, clip_loss=1.2, loss_noise=noise)
    sent = []
    for seed in (1, 2, 3, 4):
        federation = clients(seed)
        request = requests(federation)[name]
        sent.append(numbers(Private(federation, privacy, seed=5).ask(request))[3])
    if name in ("train", "personal", "gradients"):
        diameter = 2 * 0.2
    else:
        scale = {"losses": 1.2, "held-out losses": 1.2, "shares": 1.0}.get(name)
        units = torch.tensor([1.2, 1.0]) if scale is None else torch.tensor(scale)
        sent = [each / units for each in sent]
        diameter = np.sqrt(len(sent[0]))
    changes = [float((a - b).norm()) for a in sent for b in sent]
    assert 0 < max(changes) <= diameter * (1 + 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_noise_depends_on_the_client_and_the_question_alone(name: str) -> None:
    federation = clients()
    private = Private(federation, PRIVACY, seed=5)
    sent = numbers(private.ask(requests(federation)[name]))
    assert torch.equal(numbers(private.ask(requests(federation)[name])), sent), "asked again"
    order = np.array([2, 0])
    some = numbers(Private(federation, PRIVACY, seed=5).ask(requests(federation, order)[name]))
    torch.testing.assert_close(some, sent[[2, 0]])
    other = numbers(Private(federation, PRIVACY, seed=6).ask(requests(federation)[name]))
    assert not torch.equal(other, sent)
    clean = numbers(federation.ask(requests(federation)[name]))
    assert not torch.equal(clean, sent)


def test_the_noise_of_two_questions_does_not_cancel() -> None:
    federation = clients()
    private = Private(federation, Privacy(clip_update=1e-6, update_noise=1e6))
    w0 = federation.initial_model(0).unsqueeze(0)
    first, second, later = (
        private.ask(Train(EVERYONE[:1], start, LOCAL, Key(0, "x", round))).values - start
        for start, round in ((w0, 0), (w0 + 1e-3, 0), (w0, 1))
    )
    for a, b in ((first, second), (first, later)):
        assert abs(float(torch.corrcoef(torch.cat([a, b]))[0, 1])) < 0.5


def test_what_has_no_bound_is_not_answered() -> None:
    federation = clients()
    private = Private(federation, PRIVACY)
    request = BootstrapLosses(EVERYONE, federation.initial_model(0).unsqueeze(0))
    replies = private.ask(request)
    assert len(replies.values) == 0
    assert set(replies.missing) == {0, 1, 2, 3}
    with pytest.raises(InputError, match="private clients do not tell their classes"):
        private.ask(ClassCounts(EVERYONE))
    with pytest.raises(InputError, match="private clients do not tell their classes"):
        SRFCA(local=LOCAL, distance="balanced_cross_loss").fit(private)


class Watch(Middleware):
    """Count the requests that clients see."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self.counts = {"updates": np.zeros(4, np.int64), "statistics": np.zeros(4, np.int64)}

    def ask(self, request: Request[Any]) -> Replies[Any]:
        kind = "updates" if isinstance(request, Train | Gradients) else "statistics"
        if len(request.clients):
            self.counts[kind][np.unique(request.clients)] += 1
        return super().ask(request)


@pytest.mark.parametrize(
    "method",
    [
        SRFCA(local=LOCAL, fine_tune_steps=2), FedAvg(local=LOCAL, participation=0.5),
        IFCA(k=2, local=LOCAL), SRFCA(local=LOCAL, exchange="gradients", threshold=1.0),
    ],
)  # fmt: skip
def test_a_run_says_what_it_has_revealed(method: Any, tmp_path: Path) -> None:
    watch = Watch(clients())
    result = method.fit(Private(watch, PRIVACY), seed=1, journal=tmp_path / "journal")
    spent = result.privacy
    assert spent is not None
    assert spent.updates == watch.counts["updates"].max()
    assert spent.statistics == watch.counts["statistics"].max()
    assert f"epsilon {spent.epsilon:.4g} at delta 1e-05" in result.summary()
    assert Result.load(result.save(tmp_path / "result")).privacy == spent
    again = method.fit(Private(clients(), PRIVACY), seed=1, journal=tmp_path / "journal")
    assert torch.equal(again.models, result.models)
    assert again.privacy == spent, "what the journal answers was revealed too"
    assert method.fit(clients(), seed=1).privacy is None


def test_an_adaptation_adds_what_it_reveals() -> None:
    private = Private(clients(), PRIVACY)
    result = SRFCA(local=LOCAL).fit(private)
    adapted = adapt(result, private, LOCAL, rounds=2)
    assert result.privacy is not None
    assert adapted.privacy is not None
    assert adapted.privacy.updates >= result.privacy.updates + 2
    assert adapted.privacy.epsilon > result.privacy.epsilon
    with pytest.raises(InputError, match="as private as they were"):
        adapt(result, clients(), LOCAL, rounds=2)


def test_clusters_are_found_with_a_little_noise() -> None:
    federation = digits(num_clients=12, rotations=2)
    privacy = Privacy(clip_update=5.0, update_noise=1e-3, loss_noise=0.02)
    result = SRFCA(local=DIGITS).fit(Private(federation, privacy))
    assert result.partition == federation.data.truth


def test_private_clients_are_counted_once_in_nested_runs() -> None:
    run = Run(Private(clients(), PRIVACY))
    inner = Run(run.federation)
    inner.ask(Losses(EVERYONE, run.initial_model().unsqueeze(0)))
    assert run.privacy_spent is not None
    assert (run.privacy_spent.updates, run.privacy_spent.statistics) == (0, 1)
