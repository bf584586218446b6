"""What differs between the clusters' data, in words."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from srfca.analysis.differences import ClusterDifference, FeatureDifference

STANDS_OUT = 0.5
"""Standardized difference from which on a feature, or a class, stands out."""
SHARE_STANDS_OUT = 0.1
"""Difference of a class's share from which on it stands out."""


def difference_words(
    described: ClusterDifference,
    are_images: bool = False,
    shares: frozenset[str] = frozenset(),
    within: Mapping[str, FeatureDifference] | None = None,
) -> str:
    """Return in words what stands out in the data of a cluster.

    Args:
        described: What the data is like.
        are_images: Leave out single inputs.
        shares: Names of inputs whose means are shares.
        within: Features that stand out within classes, by name of the class.
    """
    parts = _label_words(described)
    chance = 4 / np.sqrt(max(described.samples, 1))
    if not are_images:
        for feature in described.features[:3]:
            if abs(feature.difference) >= max(STANDS_OUT, chance):
                parts.append(_feature_words(feature, feature.name in shares))
    elif described.features:
        most = abs(described.features[0].difference)
        if most >= max(STANDS_OUT, chance):
            parts.append(f"the mean image differs, by up to {most:.1f} standard deviations a pixel")
    classes = [
        f"within class {name}, {_feature_words(feature, feature.name in shares)}"
        for name, feature in list((within or {}).items())[:3]
    ] or _class_words(described)
    return (
        "; ".join([*parts, *classes])
        or "labels and inputs are alike on average; how they are related may differ"
    )


def _feature_words(feature: FeatureDifference, is_share: bool) -> str:
    """Return in words how a feature differs.

    >>> _feature_words(FeatureDifference("carrier=UA", 0.394, 0.1, 0.7), True)
    'carrier=UA is more common: 39% against 10%'
    """
    higher = feature.difference > 0
    if is_share:
        word = "more" if higher else "less"
        return f"{feature.name} is {word} common: {feature.mean:.0%} against {feature.others:.0%}"
    return (
        f"{feature.name} is {'higher' if higher else 'lower'}: {feature.mean:.4g} against "
        f"{feature.others:.4g} ({abs(feature.difference):.1f} standard deviations)"
    )


def _label_words(described: ClusterDifference) -> list[str]:
    """Return which classes are more or less common than elsewhere, at most three of each."""
    shares = np.array(described.class_shares) - np.array(described.other_shares)
    words = []
    for sign, title in ((1, "more of"), (-1, "less of")):
        order = np.argsort(-sign * shares, kind="stable")[:3].tolist()
        common = [
            f"{described.class_names[c]} ({described.class_shares[c]:.0%} against "
            f"{described.other_shares[c]:.0%})"
            for c in order
            if sign * shares[c] >= SHARE_STANDS_OUT
        ]
        if common:
            words.append(f"{title} class {', '.join(common)}")
    return words


def _class_words(described: ClusterDifference) -> list[str]:
    """Return the classes whose inputs differ from those of the same class elsewhere."""
    present_classes = [
        (difference, name)
        for difference, name in zip(described.class_differences, described.class_names, strict=True)
        if difference is not None
    ]
    standing_out = sorted([pair for pair in present_classes if pair[0] >= STANDS_OUT], reverse=True)
    if not standing_out:
        return []
    if len(standing_out) == len(present_classes) and len(present_classes) > 3:
        return ["inputs of every class differ from those of the same class elsewhere"]
    listed = ", ".join(f"{name} ({difference:.1f})" for difference, name in standing_out[:3])
    more = f" and {len(standing_out) - 3} more" if len(standing_out) > 3 else ""
    return [f"inputs differ, in standard deviations, within class {listed}{more}"]
