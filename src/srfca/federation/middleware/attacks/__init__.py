"""Attacks: what corrupt clients do, as middleware around any federation.

``Attacked`` puts an attack around a federation; ``draw_attackers`` chooses the clients. ``ATTACKS``
has the attacks by name, as ``srfca stress`` takes them.
"""

from srfca.federation.middleware.attacks.attacked import Attacked
from srfca.federation.middleware.attacks.attackers import PLACEMENTS, Placement, draw_attackers
from srfca.federation.middleware.attacks.base import Attack, Updates
from srfca.federation.middleware.attacks.collusion import (
    InnerProduct,
    LittleIsEnough,
    Mimic,
    Sybils,
)
from srfca.federation.middleware.attacks.label_flip import LabelFlip
from srfca.federation.middleware.attacks.lies import Combined, HeldOutLies, LyingLosses, LyingSizes
from srfca.federation.middleware.attacks.registry import ATTACKS, attack_named
from srfca.federation.middleware.attacks.updates import (
    GaussianNoise,
    ModelReplacement,
    NotFinite,
    Scaling,
    SignFlip,
)

__all__ = [
    "ATTACKS",
    "Attack",
    "Attacked",
    "Combined",
    "GaussianNoise",
    "HeldOutLies",
    "InnerProduct",
    "LabelFlip",
    "LittleIsEnough",
    "LyingLosses",
    "LyingSizes",
    "Mimic",
    "ModelReplacement",
    "NotFinite",
    "PLACEMENTS",
    "Placement",
    "Scaling",
    "SignFlip",
    "Sybils",
    "Updates",
    "attack_named",
    "draw_attackers",
]
