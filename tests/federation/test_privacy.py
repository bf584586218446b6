"""Bounds, noise, and the accountant."""

from __future__ import annotations

from math import exp, inf, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import kstest, norm

from srfca import InputError
from srfca.federation import Privacy, PrivacySpent
from srfca.federation.accountant import epsilon
from srfca.federation.privacy import noise_source, normal

NUMBERS = st.one_of(st.floats(-1e38, 1e38), st.sampled_from([np.nan, np.inf, -np.inf, 0.0]))


def gaussian_epsilon(shift: float, delta: float) -> float:
    """The analytic Gaussian mechanism (Balle and Wang, ICML 2018): sensitivity over deviation."""

    def excess(value: float) -> float:
        upper, lower = shift / 2 - value / shift, -shift / 2 - value / shift
        return float(norm.cdf(upper) - exp(value + norm.logcdf(lower)) - delta)

    return float(brentq(excess, 0, shift**2 + 20 * shift + 20))


@given(st.lists(NUMBERS, min_size=1, max_size=20), st.floats(1e-3, 1e3))
def test_no_update_is_longer_than_its_bound(change: list[float], clip: float) -> None:
    privacy = Privacy(clip_update=clip, update_noise=0.0)
    sent = privacy.update(torch.tensor(change), b"source")
    assert float(sent.double().norm()) <= clip * (1 + 1e-6)
    short = torch.full((4,), clip / 4)
    torch.testing.assert_close(privacy.update(short, b"source"), short)


@given(st.lists(NUMBERS, min_size=1, max_size=20), st.floats(0, 5))
def test_statistics_stay_in_their_range(losses: list[float], noise: float) -> None:
    privacy = Privacy(clip_loss=2.0, loss_noise=noise)
    sent = privacy.statistics(privacy.as_fractions(torch.tensor(losses)), b"source")
    assert bool(((sent >= 0) & (sent <= 1)).all())


def test_the_noise_of_an_update_is_a_multiple_of_its_bound() -> None:
    privacy = Privacy(clip_update=3.0, update_noise=0.5)
    noise = privacy.update(torch.zeros(20_000), b"source").double() / 1.5
    assert kstest(noise.numpy(), "norm").pvalue > 0.01


def test_the_noise_of_losses_grows_with_their_number() -> None:
    privacy = Privacy(loss_noise=0.004)
    for count in (4, 400):
        draws = [
            privacy.statistics(torch.full((count,), 0.5), f"{count} {n}".encode()) - 0.5
            for n in range(8000 // count)
        ]
        noise = torch.cat(draws).double() / (0.004 * sqrt(count) / 2)
        assert kstest(noise.numpy(), "norm").pvalue > 0.01


def test_normal_numbers() -> None:
    numbers = normal(b"a", 50_001).numpy()
    assert kstest(numbers, "norm").pvalue > 0.01
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.02
    assert (normal(b"a", 50_001).numpy() == numbers).all()
    assert normal(b"a", 0).shape == (0,)


def test_noise_differs_by_seed_purpose_client_round_and_question() -> None:
    arguments = (1, "train", "ann", 2, "ab")
    others = [(2, "train", "ann", 2, "ab"), (1, "losses", "ann", 2, "ab"),
              (1, "train", "bob", 2, "ab"), (1, "train", "ann", 3, "ab"),
              (1, "train", "ann", 2, "cd")]  # fmt: skip
    assert len({noise_source(*each) for each in [arguments, arguments, *others]}) == 6


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-3])
def test_one_release_is_the_analytic_gaussian_mechanism(noise: float, delta: float) -> None:
    pytest.importorskip("dp_accounting")
    privacy = Privacy(update_noise=noise, loss_noise=noise, delta=delta)
    expected = gaussian_epsilon(2 / noise, delta)  # the diameter of a ball over the deviation
    assert epsilon(privacy, 1, 0) == pytest.approx(expected, rel=1e-3)
    assert epsilon(privacy, 0, 1) == pytest.approx(expected, rel=1e-3)
    assert epsilon(privacy, 1, 0) >= expected, "an upper bound"


def test_releases_compose_as_gaussians_do() -> None:
    pytest.importorskip("dp_accounting")
    privacy = Privacy(update_noise=5.0, loss_noise=10.0)
    shift = 2 * sqrt(30 / 5.0**2 + 12 / 10.0**2)
    assert epsilon(privacy, 30, 12) == pytest.approx(gaussian_epsilon(shift, 1e-5), rel=1e-3)
    weak = Privacy(update_noise=0.05, loss_noise=0.1)
    expected = gaussian_epsilon(2 * sqrt(10 / 0.05**2 + 10 / 0.1**2), 1e-5)
    assert expected <= epsilon(weak, 10, 10) < 1.1 * expected, "a looser bound"


def test_no_noise_is_no_guarantee_and_no_release_reveals_nothing() -> None:
    assert epsilon(Privacy(update_noise=0.0), 1, 0) == inf
    assert epsilon(Privacy(), 0, 0) == 0
    spent = PrivacySpent.of(Privacy(update_noise=0.0), 1, 0)
    assert PrivacySpent.from_json(spent.to_json()) == spent


@pytest.mark.parametrize("name", ["clip_update", "clip_loss", "delta"])
def test_settings_are_checked(name: str) -> None:
    with pytest.raises(InputError, match=name):
        Privacy(**{name: 0.0})
    with pytest.raises(InputError, match=r"update_noise must be in \[0, inf\)"):
        Privacy(update_noise=-1.0)
    privacy = Privacy(clip_update=2.0, delta=1e-6)
    assert Privacy.from_json(privacy.to_json()) == privacy


@pytest.mark.parametrize("name", ["clip_update", "update_noise", "clip_loss", "loss_noise"])
def test_infinite_settings_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=rf"{name} must be in .*, inf\), not inf"):
        Privacy(**{name: inf})


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", '{"x": 1}', "[" * 100_000, "9" * 5000],
    ids=["empty", "list", "null", "unknown", "deep", "long"],
)
def test_a_text_without_settings_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not the settings of private clients"):
        Privacy.from_json(text)
