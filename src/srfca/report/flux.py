"""Figures that FLUX publishes, beside those that were measured here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from srfca.report.field import FieldLine, Variant
from srfca.report.field_tables import score_text
from srfca.report.summary import Table

PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "flux-mnist": {
        "FLUX": 92.5, "FLUX, prior": 95.8, "pFedMe": 95.5, "APFL": 95.5, "IFCA": 84.1,
        "FedAvg": 80.9,
    },
    "flux-fashion-mnist": {
        "FLUX": 79.4, "FLUX, prior": 81.9, "pFedMe": 81.9, "APFL": 81.9, "IFCA": 72.4,
        "FedAvg": 65.5,
    },
    "flux-cifar10": {
        "FLUX": 38.6, "FLUX, prior": 40.1, "pFedMe": 42.4, "APFL": 44.7, "IFCA": 38.3,
        "FedAvg": 30.9,
    },
}  # fmt: skip
"""Mean accuracy in percent over four shifts and eight levels (FLUX, NeurIPS 2025)."""
NUM_FEDERATIONS = 32
"""Federations that a published figure is the mean of."""
_MEASURED = {"sr-fca": "SR-FCA\nhere", "ifca": "IFCA\nhere", "global": "FedAvg\nhere"}


def published_table(lines: Sequence[FieldLine]) -> Table | None:
    """Return a table of published and measured means; None if no data set was run in full."""
    complete = [line for line in lines if line.num_federations == NUM_FEDERATIONS]
    names = {line.title.partition(",")[0]: line for line in complete}
    shown = [name for name in PUBLISHED if name in names]
    if not shown:
        return None
    methods = list(PUBLISHED[shown[0]])
    cells = [
        [score_text(names[name].spread(Variant(key)), names[name]) for key in _MEASURED]
        + [f"{PUBLISHED[name][method]:.1f}" for method in methods]
        for name in shown
    ]
    columns = [*_MEASURED.values(), *(method.replace(" ", "\n") for method in methods)]
    best = [[False] * len(columns) for _ in shown]
    title = "Means over all shifts and levels: measured here, and published by FLUX"
    return Table(title, columns, shown, cells, best, head="federation")
