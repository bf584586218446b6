"""Where methods that are told the number of models begin."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from srfca.errors import require, unknown
from srfca.federation.base import Work
from srfca.methods.rounds import check_finite
from srfca.methods.run import Run
from srfca.random import Key, client_words, streams

STARTS = ("random", "clients")
_SEEDS = 2**31


def check_start(start: str) -> None:
    """Refuse a start that has no such name."""
    if start not in STARTS:
        raise unknown("start", start, STARTS)


def starting_models(run: Run, k: int, start: str, work: Work) -> Tensor:
    """``[k, P]`` by name: ``random`` or ``clients``."""
    m = len(run.federation.clients)
    require(k <= m, f"k={k} is more than the {m} clients")
    return random_models(run, k) if start == "random" else models_of_clients(run, k, work)


def random_models(run: Run, k: int) -> Tensor:
    """K starts of the federation's model, each with a seed of its own: ``[k, P]``."""
    seeds = [Key(run.seed, "start", number).word() % _SEEDS for number in range(k)]
    rows = torch.stack([run.federation.initial(seed) for seed in seeds])
    require(
        k == 1 or not torch.equal(rows, rows[:1].expand_as(rows)),
        "start='random' needs a model that is drawn anew for each seed, but this federation's is "
        "always the same, so that the models would never differ: set start='clients'",
    )
    return rows


def models_of_clients(run: Run, k: int, work: Work) -> Tensor:
    """K clients' models, each trained alone from w0 through all steps: ``[k, P]``.

    The first client is drawn; each further one is the client whose loss is largest with the best
    model so far, as k-means may choose its centres.
    """
    federation = run.federation
    every = range(len(federation.clients))
    w0, alone = federation.initial(run.seed).unsqueeze(0), replace(work, local_steps=work.steps)
    key = Key(run.seed, "start")
    client = int(streams(key, client_words(federation.clients)).argmin())
    rows: list[Tensor] = []
    least = w0.new_full((len(every),), torch.inf)
    with run.stage("START", k * work.steps) as tick:
        while len(rows) < k:
            row = federation.fit(w0, [client], alone, key, tick)
            rows.append(check_finite(row, [f"client {federation.clients[client]!r}"], "start"))
            least = torch.minimum(least, federation.losses(row, every)[0])
            client = int(least.argmax())
    return torch.cat(rows)
