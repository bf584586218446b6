"""Attacks by name."""

from __future__ import annotations

from collections.abc import Mapping

from srfca.errors import unknown
from srfca.federation.middleware.attacks.base import Attack
from srfca.federation.middleware.attacks.collusion import (
    InnerProduct,
    LittleIsEnough,
    Mimic,
    Sybils,
)
from srfca.federation.middleware.attacks.label_flip import LabelFlip
from srfca.federation.middleware.attacks.lies import Combined, HeldOutLies, LyingLosses, LyingSizes
from srfca.federation.middleware.attacks.updates import (
    GaussianNoise,
    ModelReplacement,
    NotFinite,
    Scaling,
    SignFlip,
)

ATTACKS: Mapping[str, Attack] = {
    "label-flip": LabelFlip(),
    "sign-flip": SignFlip(),
    "reverse-scaling": SignFlip(factor=5),
    "scaling": Scaling(factor=10),
    "gaussian-noise": GaussianNoise(),
    "alie": LittleIsEnough(),
    "ipm": InnerProduct(),
    "model-replacement": ModelReplacement(),
    "mimic": Mimic(),
    "sybils": Sybils(),
    "low-losses": LyingLosses("low"),
    "high-losses": LyingLosses("high"),
    "targeted-losses": LyingLosses("targeted"),
    "held-out-lies": HeldOutLies(),
    "bad-and-lying": Combined(SignFlip(factor=5), LyingLosses("low")),
    "lying-sizes": LyingSizes(),
    "not-finite": NotFinite(),
}
"""Attacks by the name that ``srfca stress`` takes."""


def attack_named(name: str) -> Attack:
    """Return an attack by its name.

    Args:
        name: One of ``ATTACKS``.

    Returns:
        The attack.

    Raises:
        InputError: If there is none; the message names the nearest.

    >>> attack_named("scaling")
    Scaling(factor=10)
    """
    if name not in ATTACKS:
        raise unknown("attack", name, ATTACKS)
    return ATTACKS[name]
