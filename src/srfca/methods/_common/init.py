"""Where methods that are told the number of models begin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.errors import require, unknown
from srfca.federation.base import Federation, Tick, Work, silent
from srfca.methods.rounds import answered, require_clients
from srfca.methods.run import Run
from srfca.random import Key, bits, client_words, streams

STARTS = ("random", "clients", "distant")
"""Random models; models of clients drawn at random; models of clients that are far apart."""


def check_start(start: str) -> None:
    """Refuse a start that has no such name."""
    if start not in STARTS:
        raise unknown("start", start, STARTS)


def check_start_steps(steps: int | None, work: Work) -> None:
    """Refuse a number of steps that is none, or more than those of ``work``."""
    require(
        steps is None or 1 <= steps <= work.steps,
        f"start_steps must be from 1 to {work.steps} (the steps of work), not {steps}",
    )


def starting_models(
    run: Run, k: int, start: str, work: Work, steps: int, purpose: str
) -> tuple[Tensor, list[int]]:
    """K models ``[k, P]`` by one of ``STARTS``, and whose they are.

    Clients train alone from w0 for the first ``steps`` of ``work``.
    """
    if start == "random":
        return random_models(run, k, purpose), []
    if start == "distant":
        return distant_models(run, k, work, steps, purpose)
    with run.stage("START", k * steps) as tick:
        return drawn_models(run, k, work, steps, purpose, tick)


def random_models(run: Run, k: int, purpose: str) -> Tensor:
    """Random models, refused where they are all one and the same: ``[k, P]``."""
    words = (Key(run.seed, purpose, c).word() for c in range(k))
    models = torch.stack([run.federation.initial(abs(word)) for word in words])
    require(
        k == 1 or not torch.equal(models, models[:1].expand_as(models)),
        f"start='random' gives {k} equal models here, because this federation has a given start: "
        "use start='clients'",
    )
    return models


def drawn_clients(federation: Federation, k: int, key: Key) -> NDArray[np.int64]:
    """All clients in random order, of whom ``k`` are wanted: ``[m]``."""
    m = len(federation.clients)
    require_clients(m, k)
    return np.argsort(streams(key, client_words(federation.clients)).numpy(), kind="stable")


def drawn_models(
    run: Run, k: int, work: Work, steps: int, purpose: str, tick: Tick = silent
) -> tuple[Tensor, list[int]]:
    """The models ``[k, P]`` of drawn clients, and who they are; others replace who is silent."""
    order = drawn_clients(run.federation, k, Key(run.seed, purpose))
    models, who = [], list[int]()
    while len(who) < k:
        asked, order = order[: k - len(who)], order[k - len(who) :]
        require(len(asked) > 0, f"only {len(who)} clients answer, where k={k} models are wanted")
        rows, found = solo_models(run, asked, work, steps, purpose, tick)
        models.append(rows)
        who += found.tolist()
    return torch.cat(models), who


def solo_models(
    run: Run, who: NDArray[np.int64], work: Work, steps: int, purpose: str, tick: Tick = silent
) -> tuple[Tensor, NDArray[np.int64]]:
    """Clients train alone from w0, for the first steps of ``work``: ``[c, P]``, and who answers."""
    federation, alone = run.federation, replace(work, local_steps=steps)
    w0 = federation.initial(run.seed).expand(len(who), -1)
    rows = federation.fit(w0, who.tolist(), alone, Key(run.seed, purpose), tick)
    return answered(federation, rows, who, "local training")


def distant_models(
    run: Run, k: int, work: Work, steps: int, purpose: str, centres: str = "worst"
) -> tuple[Tensor, list[int]]:
    """The models ``[k, P]`` of k clients that train alone, and who they are, as k-means may start.

    The first is drawn. Each further one is the client that does ``worst`` under the best of those
    there are, or one ``drawn`` with a chance in proportion to that loss.
    """
    federation, m = run.federation, len(run.federation.clients)
    order = drawn_clients(federation, k, Key(run.seed, purpose)).tolist()
    tried, who = list[int](), list[int]()
    models: list[Tensor] = []
    best = np.full(m, np.inf)
    with run.stage("START", k * steps) as tick:
        while True:
            require(len(tried) < m, f"only {len(who)} clients answer, where k={k} are wanted")
            if who:
                key = Key(run.seed, f"{purpose} next", len(tried))
                tried.append(next_centre(best, tried, centres, key))
            else:
                tried.append(order[len(tried)])
            rows, found = solo_models(run, np.array(tried[-1:]), work, steps, purpose, tick)
            if len(found) == 0:
                continue
            models.append(rows)
            who.append(tried[-1])
            if len(who) == k:
                return torch.cat(models), who
            losses = federation.losses(rows, range(m))[0].cpu().double().numpy()
            best = np.fmin(best, losses)


def next_centre(best: NDArray[np.float64], taken: list[int], how: str, key: Key) -> int:
    """A client that is not taken yet, by its loss ``[m]`` under the best centre there is.

    One whose loss is not known comes last.
    """
    weights = np.where(np.isfinite(best), best, 0.0)
    weights[taken] = -1.0
    if how == "worst" or weights.max() == 0.0:
        return int(weights.argmax())
    sums = np.cumsum(weights.clip(min=0.0))
    chance = (int(bits(torch.tensor(key.word()), 1)) & (2**53 - 1)) / 2**53
    return int(np.searchsorted(sums, chance * sums[-1], side="right"))
