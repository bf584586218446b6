"""FedSoft: clusters that clients belong to in part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar, Literal

import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.algorithms import Descent
from srfca.federation.local_training import LocalTraining
from srfca.federation.requests import Shares, Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.init import Start, starting_models
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Choices, Range, SearchSpace
from srfca.methods._common.server_update import ServerUpdate
from srfca.methods.registry import register
from srfca.parameters import constrained
from srfca.random import Key, bits, client_words, streams


@register
@dataclass(frozen=True, kw_only=True)
class FedSoft(Method):
    """Train k centers; client i's model minimizes ``f_i(w) + mu/2 sum_s u_is |w - c_s|^2``.

    The importance weights u of a client are normalized to sum 1, so that all clients are pulled
    alike, each to its mean of the centers. A client continues from its model of the round before,
    which gets closer to the minimum, round by round, than a new start from the centers. Its
    optimizer keeps its state, because it is one training of one model.

    Args:
        k: Number of centers.
        mu: lambda in the paper: how strongly a client is pulled to its centers; 0 would be Local.
        sigma: The smallest importance weight of a center, before normalization.
        tau: Rounds between two estimates of the importance weights.
        predicts_with: What clients predict with: their ``personal`` models, or the ``center`` of
            their largest importance weight.
        start: ``distant`` (models of k clients that do badly with each other's), ``clients`` (of
            clients drawn at random), or ``random`` (as in the paper).
        participation: The fraction of the clients that take part in a round: as many draws in all,
            shared by the centers. A client that is not drawn for the last round trains too, for
            itself.

    >>> from srfca import LocalTraining, Simulation, data, models
    >>> fed = Simulation(data.rotated_digits(num_clients=12, rotations=2), models.mlp(64, 32, 10))
    >>> result = FedSoft(k=2, local=LocalTraining(steps=60, batch_size=10, lr=0.5)).fit(fed, seed=0)
    >>> result.partition == fed.data.truth
    True
    """

    key: ClassVar[str] = "fedsoft"
    name: ClassVar[str] = "FedSoft"
    paper: ClassVar[str] = (
        "Ruan, Joe-Wong: FedSoft: Soft Clustered Federated Learning with Proximal Local Updating. "
        "AAAI 2022."
    )
    family: ClassVar[Family] = "personalization"
    needs_k: ClassVar[bool] = True
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "mu": Range(0.003, 3.0, log=True),
        "predicts_with": Choices(("personal", "center")),
    }

    k: int = constrained(2, at_least=1)
    mu: float = constrained(0.03, more_than=0)
    sigma: float = constrained(1e-4, more_than=0, less_than=1)
    tau: int = constrained(2, at_least=1)
    predicts_with: Literal["personal", "center"] = "personal"
    start: Start = "distant"
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def solve(self, run: Run) -> Answer:
        """Find the centers and every client's model."""
        alone = replace(self.local, mu=0.0)
        local, m = replace(alone, mu=self.mu, keep_state=alone.has_state), run.num_clients
        c, _ = starting_models(run, self.k, self.start, alone, local.steps, "start")
        draws = None if self.participation == 1 else ceil(self.participation * m / self.k - 1e-9)
        server = ServerUpdate(run, local, local.rounds)
        u = c.new_full((m, self.k), 1 / self.k)
        replied = torch.zeros(m, dtype=torch.bool, device=c.device)
        w: Tensor | None = None
        personal = self.predicts_with == "personal"
        with run.stage("FEDSOFT", m * local.steps if draws is None else 0):
            for number in range(local.rounds):
                key = run.key("fedsoft", number)
                if number % self.tau == 0:
                    shares = run.ask(Shares(run.everyone, c))
                    clients = torch.as_tensor(shares.clients, device=c.device)
                    u[clients] = importance(shares.values, self.sigma)
                    replied[clients] = True
                v = aggregation_weights(u, run.sizes)
                if draws is not None:
                    v = drawn_weights(v, draws, key)
                drawn, anchors = v.cpu().any(1), u @ c
                w = anchors.clone() if w is None else w
                w, sent = train_pulled(run, w, anchors, drawn, local, key)
                if number == local.rounds - 1 and personal:
                    w, _ = train_pulled(run, w, anchors, ~drawn, local, key, private=True)
                aggregated = update_centers(v * sent.unsqueeze(1), w, c)
                c, replied = server.update(number, c, aggregated), replied | sent
                labels = torch.where(replied, u.argmax(1), -1).cpu().numpy()
                models, of_clients = (w, None) if personal else (c, labels)
                run.end_round("FEDSOFT", number, local.rounds, models, of_clients)
        if not personal:
            run.curve.renumber("FEDSOFT", labels)
        c = server.result(local.rounds - 1, c)
        answer = Answer.canonical(labels, c, w if personal else None)
        empty = sorted(set(range(self.k)) - set(labels.tolist()))
        notes = {"importance": u.tolist(), "empty": empty}
        run.record("FEDSOFT", Partition(labels), answer.client_models, notes=notes)
        return answer


def train_pulled(
    run: Run,
    w: Tensor,
    anchors: Tensor,
    chosen: Tensor,
    local: LocalTraining,
    key: Key,
    private: bool = False,
) -> tuple[Tensor, Tensor]:
    """Train the chosen clients' models, pulled to their anchors.

    Args:
        run: The run.
        w: ``[m, P]`` the clients' models.
        anchors: ``[m, P]``
        chosen: ``[m]`` which clients train.
        local: How they train.
        key: The training and its round.
        private: The models need not be sent.

    Returns:
        The models ``[m, P]``, and which of them were sent ``[m]``.
    """
    sent = torch.zeros(len(w), dtype=torch.bool, device=w.device)
    clients = chosen.nonzero().flatten()
    if not len(clients):
        return w, sent
    index = clients.to(w.device)
    pull = Descent(anchors=anchors[index])
    request = Train(clients.numpy(), w[index], local, key, pull, private=private)
    replies = run.train(request, "training")
    replied = torch.as_tensor(replies.clients, device=w.device)
    sent[replied] = True
    return w.index_copy(0, replied, replies.values), sent


def importance(shares: Tensor, sigma: float) -> Tensor:
    """Return u ``[m, k]``: the shares of samples that fit each center best, at least sigma.

    >>> importance(torch.tensor([[0.75, 0.25, 0.0]]), sigma=0.25)
    tensor([[0.6000, 0.2000, 0.2000]])
    """
    u = shares.clamp(min=sigma)
    return u / u.sum(1, keepdim=True)


def aggregation_weights(u: Tensor, sizes: Tensor) -> Tensor:
    """Return v ``[m, k]``: each client's weight in each center, ``u_is n_i``, normalized."""
    weights = u * sizes.to(u.device, u.dtype).unsqueeze(1)
    return weights / weights.sum(0)


def update_centers(v: Tensor, w: Tensor, before: Tensor) -> Tensor:
    """Return means ``[k, P]`` of rows ``[m, P]`` with weights ``[m, k]``.

    A center whose weights are all 0 is as before.
    """
    total = v.sum(0).unsqueeze(1)
    return torch.where(total > 0, v.T @ w / total.clamp(min=1e-30), before)


def drawn_weights(v: Tensor, draws: int, key: Key) -> Tensor:
    """Draw clients for each center with probabilities v; return their frequencies ``[m, k]``."""
    random = bits(streams(key, client_words([f"centre {s}" for s in range(v.shape[1])])), draws)
    uniform = (random >> 11 & (2**53 - 1)).double() / 2**53  # [k, draws]
    edges = v.cpu().double().cumsum(0).T.contiguous()  # [k, m]
    drawn = torch.searchsorted(edges, uniform * edges[:, -1:], right=True)
    count = torch.zeros_like(edges).scatter_add_(1, drawn, torch.ones_like(uniform))
    return (count.T / draws).to(v)
