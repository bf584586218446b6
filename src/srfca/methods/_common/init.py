"""Initial models of methods that are given the number of clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.errors import require
from srfca.federation.local_training import LocalTraining
from srfca.federation.replies import Clients, Replies
from srfca.federation.requests import Losses, Train
from srfca.methods._common.rounds import require_clients
from srfca.methods._common.run import Run
from srfca.random import Key, bits, client_words, streams

Start = Literal["random", "clients", "distant"]
"""Random models; models of clients drawn at random; models of clients that are far apart."""
Centers = Literal["worst", "drawn"]
"""How the next distant client is chosen: by the largest loss, or in proportion to it."""


def check_start_steps(steps: int | None, local: LocalTraining) -> None:
    """Raise an error for a number of steps that is larger than that of ``local``."""
    require(
        steps is None or 1 <= steps <= local.steps,
        f"start_steps must be from 1 to {local.steps} (the steps of local training), not {steps}",
    )


def starting_models(
    run: Run, k: int, start: Start, local: LocalTraining, steps: int, purpose: str
) -> tuple[Tensor, list[int]]:
    """Return k models to start from, and the clients that they are from.

    Args:
        run: The run.
        k: How many models.
        start: How they are made.
        local: How clients train.
        steps: Clients train alone from w0 for this many of the steps of ``local``.
        purpose: Purpose of the random draws.

    Returns:
        Models ``[k, P]``, and k clients (none for random models).

    Raises:
        InputError: If they cannot be made: all models are equal, or too few clients reply.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.methods import Run
        >>> run = Run(Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3)))
        >>> rows, clients = starting_models(run, 2, "clients", LocalTraining(), 5, "demo")
        >>> rows.shape, len(clients)
        (torch.Size([2, 4]), 2)
    """
    if start == "random":
        return random_models(run, k, purpose), []
    if start == "distant":
        return distant_models(run, k, local, steps, purpose)
    with run.stage("START", k * steps):
        return drawn_models(run, k, local, steps, purpose)


def random_models(run: Run, k: int, purpose: str) -> Tensor:
    """Return k random models ``[k, P]``.

    Args:
        run: The run.
        k: How many models.
        purpose: Purpose of the random draws.

    Returns:
        ``[k, P]``

    Raises:
        InputError: If they are all equal, because the federation has a given start.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.methods import Run
        >>> run = Run(Simulation(data.rotated_digits(num_clients=4), models.mlp(64, 4, 10)))
        >>> random_models(run, 3, "demo").shape
        torch.Size([3, 310])
    """
    words = (run.key(purpose, number).word() for number in range(k))
    models = torch.stack([run.federation.initial_model(abs(word)) for word in words])
    require(
        k == 1 or not torch.equal(models, models[:1].expand_as(models)),
        f"start='random' gives {k} equal models here, because this federation has a given start: "
        "use start='clients'",
    )
    return models


def drawn_models(
    run: Run, k: int, local: LocalTraining, steps: int, purpose: str
) -> tuple[Tensor, list[int]]:
    """Return the models ``[k, P]`` of k clients drawn at random, and the clients.

    A client that does not reply is replaced by the next one.

    Args:
        run: The run.
        k: How many models.
        local: How clients train.
        steps: Clients train alone from w0 for this many of the steps of ``local``.
        purpose: Purpose of the random draws.

    Returns:
        Models ``[k, P]``, and k clients.

    Raises:
        InputError: If fewer than k clients reply.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.methods import Run
        >>> run = Run(Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3)))
        >>> rows, clients = drawn_models(run, 2, LocalTraining(), 5, "demo")
        >>> rows.shape, len(set(clients))
        (torch.Size([2, 4]), 2)
    """
    order = _random_order(run, k, run.key(purpose))
    models, centers = [], list[int]()
    while len(centers) < k:
        count = k - len(centers)
        drawn, order = order[:count], order[count:]
        require(len(drawn) > 0, f"only {len(centers)} clients replied, but k={k} models are needed")
        replies = train_from_start(run, drawn, local, steps, purpose)
        models.append(replies.values)
        centers += replies.clients.tolist()
    return torch.cat(models), centers


def train_from_start(
    run: Run, clients: Clients, local: LocalTraining, steps: int, purpose: str
) -> Replies[Tensor]:
    """Train clients alone from w0, for the first ``steps`` of ``local``."""
    starts = run.initial_model().expand(len(clients), -1)
    alone = replace(local, local_steps=steps)
    return run.train(Train(clients, starts, alone, run.key(purpose)))


def distant_models(
    run: Run,
    k: int,
    local: LocalTraining,
    steps: int,
    purpose: str,
    centers: Centers = "worst",
) -> tuple[Tensor, list[int]]:
    """Return the models ``[k, P]`` of k clients that are far apart, and the clients.

    The first client is drawn. Each further one is the client with the largest loss under the best
    model so far, or one drawn in proportion to that loss, as in k-means++.

    Args:
        run: The run.
        k: How many models.
        local: How clients train.
        steps: Clients train alone from w0 for this many of the steps of ``local``.
        purpose: Purpose of the random draws.
        centers: Each further client: ``worst``, the one with the largest loss, or ``drawn`` in
            proportion to it.

    Returns:
        Models ``[k, P]``, and k clients.

    Raises:
        InputError: If fewer than k clients reply.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.methods import Run
        >>> regressions = data.synthetic(num_clients=4, dimension=3)  # in turn of two clusters
        >>> run = Run(Simulation(regressions, models.linear(3)))
        >>> rows, clients = distant_models(run, 2, LocalTraining(), 20, "demo")
        >>> rows.shape, sorted(client % 2 for client in clients)
        (torch.Size([2, 4]), [0, 1])
    """
    order = _random_order(run, k, run.key(purpose)).tolist()
    candidates, chosen = list[int](), list[int]()
    models: list[Tensor] = []
    best_loss = np.full(run.num_clients, np.inf)
    with run.stage("START", k * steps):
        while True:
            require(
                len(candidates) < run.num_clients,
                f"only {len(chosen)} clients replied, but k={k} are needed",
            )
            if chosen:
                key = run.key(f"{purpose} next", len(candidates))
                candidates.append(next_center(best_loss, candidates, centers, key))
            else:
                candidates.append(order[len(candidates)])
            trained = train_from_start(run, np.array(candidates[-1:]), local, steps, purpose)
            if trained.missing:
                continue
            models.append(trained.values)
            chosen.append(candidates[-1])
            if len(chosen) == k:
                return torch.cat(models), chosen
            replies = run.ask(Losses(run.everyone, trained.values))
            losses = np.full(run.num_clients, np.nan)
            losses[replies.clients] = replies.values[:, 0].cpu().double().numpy()
            best_loss = np.fmin(best_loss, losses)


def next_center(
    best_loss: NDArray[np.float64], taken: list[int], centers: Centers, key: Key
) -> int:
    """Return a client that is not taken yet, by its loss ``[m]`` under the best model so far.

    Clients whose loss is unknown come last.
    """
    weights = np.where(np.isfinite(best_loss), best_loss, 0.0)
    weights[taken] = -1.0
    if centers == "worst" or weights.max() == 0.0:
        return int(weights.argmax())
    sums = np.cumsum(weights.clip(min=0.0))
    draw = (int(bits(torch.tensor(key.word()), 1)) & (2**53 - 1)) / 2**53
    return int(np.searchsorted(sums, draw * sums[-1], side="right"))


def _random_order(run: Run, k: int, key: Key) -> Clients:
    """Return all clients in random order, after a check that there are k: ``[m]``."""
    require_clients(run.num_clients, k)
    return np.argsort(streams(key, client_words(run.client_ids)).numpy(), kind="stable")
