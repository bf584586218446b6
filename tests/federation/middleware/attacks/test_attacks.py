"""What attackers send, attack by attack."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from srfca import ClientData, InputError, LocalTraining, Simulation
from srfca.federation import Gradients, Losses, LossMoments, Scores, Split, Train
from srfca.federation.middleware.attacks import (
    ATTACKS,
    Attack,
    Attacked,
    GaussianNoise,
    HeldOutLies,
    InnerProduct,
    LittleIsEnough,
    LyingLosses,
    LyingSizes,
    Mimic,
    ModelReplacement,
    NotFinite,
    Scaling,
    SignFlip,
    Sybils,
    attack_named,
    draw_attackers,
)
from srfca.models import linear
from srfca.random import Key
from tests.asking import positions

GROUPS = np.array([0, 0, 0, 0, 1, 1, 1, 1])
ATTACKERS = [2, 3, 7]
HONEST = [0, 1, 4, 5, 6]
LOCAL = LocalTraining(steps=6, local_steps=3, batch_size=4, lr=0.1)


def clients() -> Simulation:
    rng = np.random.default_rng(0)
    samples = [(rng.normal(size=(10, 3)).astype(np.float32), np.arange(10) % 3) for _ in range(8)]
    return Simulation(ClientData.from_arrays(samples, samples), linear(3, 3), validation=0.2)


def train(federation: Simulation | Attacked, round: int = 0) -> Tensor:
    """Return what clients change of random starts: ``[8, P]``."""
    starts = torch.randn(8, 12, generator=torch.Generator().manual_seed(1))
    request = Train(positions(range(8)), starts, LOCAL, Key(0, "test", round))
    return federation.ask(request).values - starts


def changes(attack: Attack) -> tuple[Tensor, Tensor]:
    """Return honest changes and those under attack."""
    federation = clients()
    return train(federation), train(Attacked(federation, attack, ATTACKERS, 5, GROUPS))


@pytest.mark.parametrize("name", list(ATTACKS))
def test_honest_clients_are_untouched_and_draws_repeat(name: str) -> None:
    attack = attack_named(name)
    honest, sent = changes(attack)
    assert torch.equal(sent[HONEST], honest[HONEST])
    assert torch.equal(torch.nan_to_num(sent), torch.nan_to_num(changes(attack)[1]))
    federation = clients()
    attacked = Attacked(federation, attack, ATTACKERS, 5, GROUPS)
    models = torch.zeros(2, 12)
    request = Losses(positions(range(8)), models)
    before, after = federation.ask(request).values, attacked.ask(request).values
    assert torch.equal(before[HONEST], after[HONEST])
    assert torch.equal(federation.sizes[HONEST], attacked.sizes[HONEST])
    assert attacked.fingerprint() != federation.fingerprint()


@pytest.mark.parametrize(
    ("attack", "factor"), [(SignFlip(), -1), (SignFlip(5), -5), (Scaling(), 10)]
)
def test_changes_are_multiplied(attack: Attack, factor: float) -> None:
    honest, sent = changes(attack)
    torch.testing.assert_close(sent[ATTACKERS], factor * honest[ATTACKERS], rtol=1e-3, atol=1e-5)


def test_gradients_are_attacked_like_changes() -> None:
    federation = clients()
    request = Gradients(positions(range(8)), torch.zeros(8, 12))
    sent = Attacked(federation, SignFlip(), ATTACKERS).ask(request).values
    assert torch.equal(sent[ATTACKERS], -federation.ask(request).values[ATTACKERS])


def test_noise_has_its_scale_and_is_another_every_round() -> None:
    honest, sent = changes(GaussianNoise(scale=100.0))
    ratio = sent[ATTACKERS].square().mean(1).sqrt() / honest[ATTACKERS].square().mean(1).sqrt()
    assert bool((ratio > 40).all())
    assert bool((ratio < 200).all())
    attacked = Attacked(clients(), GaussianNoise(), ATTACKERS)
    assert not torch.equal(train(attacked, 0)[2], train(attacked, 1)[2])
    assert not torch.allclose(sent[2], sent[3])


def test_colluding_attackers_look_at_honest_clients_of_their_group() -> None:
    honest, sent = changes(LittleIsEnough(2.0))
    peers = honest[[0, 1]]
    expected = peers.mean(0) - 2 * peers.std(0, correction=0)
    torch.testing.assert_close(sent[2], expected, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(sent[3], expected, rtol=1e-3, atol=1e-5)
    honest, sent = changes(InnerProduct(0.5))
    torch.testing.assert_close(sent[7], -0.5 * honest[[4, 5, 6]].mean(0), rtol=1e-3, atol=1e-5)
    honest, sent = changes(Mimic())
    torch.testing.assert_close(sent[[2, 7]], honest[[0, 4]], rtol=1e-3, atol=1e-5)


def test_attackers_without_honest_clients_send_what_they_have() -> None:
    federation = clients()
    attacked = Attacked(federation, InnerProduct(), list(range(8)))
    torch.testing.assert_close(train(attacked), train(federation), rtol=1e-3, atol=1e-5)


def test_the_mean_becomes_the_replacement() -> None:
    """Honest clients of the group do not move, so that the mean is the useless model."""
    federation = clients()
    attacked = Attacked(federation, ModelReplacement(), ATTACKERS, 5, GROUPS)
    start = torch.zeros(8, 12)
    still = LocalTraining(steps=3, local_steps=3, batch_size=4, lr=1e-12)
    rows = attacked.ask(Train(positions(range(8)), start, still, Key(0, "test"))).values
    useless = federation.initial_model(6)
    torch.testing.assert_close(rows[:4].mean(0), useless, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(rows[4:].mean(0), useless, rtol=1e-4, atol=1e-6)


def test_sybils_send_the_same_and_nan_is_nan() -> None:
    honest, sent = changes(Sybils())
    torch.testing.assert_close(sent[3], -honest[2], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(sent[7], -honest[7], rtol=1e-3, atol=1e-5)
    assert bool(changes(NotFinite())[1][ATTACKERS].isnan().all())


def test_lies_about_losses() -> None:
    federation, models = clients(), torch.zeros(3, 12)
    everyone = positions(range(8))

    def told(attack: Attack) -> list[float]:
        request = Losses(everyone, models)
        values: list[float] = (
            Attacked(federation, attack, ATTACKERS).ask(request).values[2].tolist()
        )
        return values

    assert told(LyingLosses("low")) == [0, 0, 0]
    assert told(LyingLosses("high", high=7.0)) == [7, 7, 7]
    assert told(LyingLosses("targeted", high=7.0, target=4)) == [7, 0, 7]
    moments = LossMoments(everyone, models, torch.ones(3))
    lies = Attacked(federation, LyingLosses("low"), ATTACKERS).ask(moments).values
    assert bool((lies[2, :, 0] == 0).all())
    assert bool((lies[0, :, 0] > 0).all())


def test_lies_about_scores() -> None:
    federation = clients()
    request = Scores(positions(range(8)), torch.randn(8, 12), "validation")
    true = federation.ask(request).values
    assert true.accuracy is not None
    for lie, loss, accuracy in (("low", 0.0, 1.0), ("high", 9.0, 0.0)):
        attack = LyingLosses(lie, high=9.0)  # type: ignore[arg-type]
        scores = Attacked(federation, attack, ATTACKERS).ask(request).values
        assert scores.accuracy is not None
        assert scores.loss[ATTACKERS].tolist() == [loss] * 3
        assert scores.accuracy[ATTACKERS].tolist() == [accuracy] * 3
        assert torch.equal(scores.loss[HONEST], true.loss[HONEST])
    turned = Attacked(federation, LyingLosses("targeted"), ATTACKERS).ask(request).values
    assert turned.accuracy is not None
    torch.testing.assert_close(turned.accuracy[2], 1 - true.accuracy[2])


def test_lies_about_sizes() -> None:
    assert Attacked(clients(), LyingSizes(), [1]).sizes.tolist() == [8, 2**62, 8, 8, 8, 8, 8, 8]


@given(
    st.integers(1, 40),
    st.floats(0, 0.4),
    st.integers(0, 99),
    st.sampled_from(["spread", "group", "random"]),
)
def test_attackers_are_as_many_as_asked_for(
    count: int, fraction: float, seed: int, placement: str
) -> None:
    ids = [str(client) for client in range(count)]
    groups = np.arange(count) % 3
    drawn = draw_attackers(ids, fraction, seed, groups, placement)  # type: ignore[arg-type]
    assert drawn.tolist() == sorted(set(drawn.tolist()))
    if placement == "group":
        assert len(set(groups[drawn].tolist())) <= 1
    else:
        assert len(drawn) == (max(1, round(fraction * count)) if fraction else 0)
    if placement == "spread" and count >= 3:
        shares = [np.sum(groups[drawn] == g) / np.sum(groups == g) for g in range(3)]
        assert max(shares) - min(shares) <= 1 / min(np.bincount(groups)) + 1e-9


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match=r"must be in \[0, 0.4\], not 0.5"):
        draw_attackers(["a"], 0.5)
    with pytest.raises(InputError, match="unknown placement"):
        draw_attackers(["a"], 0.1, placement="inside")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown attack 'sign-flp': did you mean"):
        attack_named("sign-flp")
    with pytest.raises(InputError, match="positions from 0 to 7"):
        Attacked(clients(), SignFlip(), [8])
    with pytest.raises(InputError, match="one number for each of 8 clients"):
        Attacked(clients(), SignFlip(), [1], groups=np.zeros(3, dtype=np.int64))
    with pytest.raises(InputError, match="factor"):
        Scaling(-1.0)


def test_lies_about_held_out_data_alone() -> None:
    federation = clients()
    attacked = Attacked(federation, HeldOutLies(high=9.0), ATTACKERS)
    models = torch.randn(3, 12, generator=torch.Generator().manual_seed(0))
    everyone, one_each = positions(range(8)), torch.zeros(8, 12)
    splits: list[tuple[Split, bool]] = [("train", False), ("validation", True)]
    for split, lies in splits:
        true = federation.ask(Losses(everyone, models, split)).values
        told = attacked.ask(Losses(everyone, models, split)).values
        assert torch.equal(told[HONEST], true[HONEST])
        assert torch.equal(told[ATTACKERS], true[ATTACKERS]) != lies
        scores = [f.ask(Scores(everyone, one_each, split)).values for f in (federation, attacked)]
        assert torch.equal(scores[0].loss, scores[1].loss) != lies
    assert torch.equal(told[ATTACKERS].argmax(1), true[ATTACKERS].argmin(1))
    assert sorted(told[2].tolist()) == [0.0, 0.0, 9.0]
    assert torch.equal(train(attacked), train(federation))


def test_attacks_are_combined() -> None:
    honest, sent = changes(attack_named("bad-and-lying"))
    torch.testing.assert_close(sent[ATTACKERS], -5 * honest[ATTACKERS], rtol=1e-3, atol=1e-5)
    attacked = Attacked(clients(), attack_named("bad-and-lying"), ATTACKERS)
    losses = attacked.ask(Losses(positions(range(8)), torch.zeros(2, 12))).values
    assert float(losses[ATTACKERS].abs().max()) == 0
