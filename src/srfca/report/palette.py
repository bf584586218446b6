"""Colors and shapes of clusters, which people with color blindness can tell apart.

Up to seven clusters have the colors of Okabe and Ito. More have hues all around the circle in three
shades; a chart with more clusters labels them with their numbers.
"""

from __future__ import annotations

from colorsys import hls_to_rgb

import numpy as np

from srfca.clustering.partition import Partition

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#B8A800")
"""Okabe and Ito's colors without black; their yellow is darker, to be seen on white."""
BLUE, ORANGE, GREEN, VERMILION = OKABE_ITO[:4]
NONE = "#8C8C8C"
"""The color of clients that are alone, or in no cluster."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right",
          "triangle-left")  # fmt: skip
"""Shapes of points, for the true clusters."""
_GOLDEN_ANGLE = 0.381966
_SHADES = ((0.42, 0.75), (0.60, 0.55), (0.32, 0.50))
"""Lightness and saturation."""


def cluster_colors(partition: Partition) -> dict[int, str]:
    """Return the color of each cluster; clients that are alone, or in no cluster (-1), are gray.

    >>> cluster_colors(Partition([0, 0, 1, 2, 2, -1]))
    {-1: '#8C8C8C', 0: '#0072B2', 1: '#8C8C8C', 2: '#E69F00'}
    >>> len(set(cluster_colors(Partition([*range(50)] * 2)).values()))
    51
    """
    several = np.flatnonzero(partition.sizes > 1).tolist()
    colors = {-1: NONE} | dict.fromkeys(range(partition.num_clusters), NONE)
    return colors | {cluster: _color(n, len(several)) for n, cluster in enumerate(several)}


def _color(number: int, count: int) -> str:
    if count <= len(OKABE_ITO):
        return OKABE_ITO[number]
    lightness, saturation = _SHADES[number % len(_SHADES)]
    red, green, blue = hls_to_rgb((number * _GOLDEN_ANGLE + 0.55) % 1, lightness, saturation)
    return f"#{round(255 * red):02X}{round(255 * green):02X}{round(255 * blue):02X}"


def cluster_name(cluster: int) -> str:
    """Return a cluster's name in legends: its number, or that it is none."""
    return "unclustered" if cluster < 0 else str(cluster)
