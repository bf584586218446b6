"""FedSoft: clusters that clients belong to in part.

Ruan, Joe-Wong: FedSoft: Soft Clustered Federated Learning with Proximal Local Updating. AAAI 2022.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.base import Tick, Work
from srfca.federation.counted import Counted
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.rounds import check_finite, heard
from srfca.methods.run import Run
from srfca.methods.starts import check_start, starting_models
from srfca.random import Key, bits, client_words, streams


@dataclass(frozen=True, kw_only=True)
class FedSoft(Method):
    """k centres; the own model of client i minimises ``f_i(w) + penalty/2 sum_s u_is |w - c_s|^2``.

    The importance weights u of a client are divided by their sum, so that all clients are pulled
    alike, each to its mean of the centres. A client goes on from its own model of the round before,
    which gets nearer to the minimum, round by round, than a fresh start from the centres.

    Args:
        k: Number of centres.
        penalty: lambda, how strongly a client is pulled to its centres.
        sigma: The least importance weight of a centre, before they are divided by their sum.
        tau: Rounds between two estimates of the importance weights.
        start: ``distant`` (models of k clients that do badly with each other's), ``clients`` (of
            clients drawn at random), or ``random`` (as in the paper).
        participation: The fraction of the clients that take part in a round: as many draws in all,
            shared by the centres. A client that is not drawn for the last round solves its problem
            too, for itself.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train; its own ``prox`` is not used.

    >>> from srfca import Simulation, Work, data, models
    >>> fed = Simulation(data.rotated_digits(clients=12, rotations=2), models.mlp(64, 32, 10))
    >>> result = FedSoft(k=2, work=Work(steps=60, batch_size=10, lr=0.5)).fit(fed, seed=0)
    >>> result.partition == fed.data.truth
    True
    """

    name: ClassVar[str] = "FedSoft"

    k: int = 2
    penalty: float = 0.03
    sigma: float = 1e-4
    tau: int = 2
    start: str = "distant"
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.k >= 1, f"k must be at least 1, not {self.k}")
        require(self.penalty > 0, f"penalty must be positive, not {self.penalty}: 0 is Local")
        require(0 < self.sigma < 1, f"sigma must be in (0, 1), not {self.sigma}")
        require(self.tau >= 1, f"tau must be at least 1, not {self.tau}")
        check_start(self.start)
        require_share(self.participation)

    def solve(self, run: Run) -> Answer:
        """Find the centres and every client's own model."""
        federation, alone = run.federation, replace(self.work, prox=0.0)
        work = replace(alone, prox=self.penalty)
        m = len(federation.clients)
        c = starting_models(run, self.k, self.start, alone, work.steps, "start")[0]
        draws = None if self.participation == 1 else ceil(self.participation * m / self.k - 1e-9)
        u = c.new_full((m, self.k), 1 / self.k)
        known = torch.zeros(m, dtype=torch.bool, device=c.device)
        w: Tensor | None = None
        with run.stage("FEDSOFT", m * work.steps if draws is None else 0) as tick:
            for number in range(work.rounds):
                key = Key(run.seed, "fedsoft", number)
                if number % self.tau == 0:
                    shares = federation.shares(c, range(m))
                    told = ~shares.isnan().any(1)
                    u[told], known = importance(shares[told], self.sigma), known | told
                v = aggregation_weights(u, federation.sizes)
                if draws is not None:
                    v = selected(v, draws, key)
                drawn, near = v.cpu().any(1), u @ c
                w = near.clone() if w is None else w
                w, sent = self._train(federation, w, near, drawn, work, key, tick)
                if number == work.rounds - 1:
                    with federation.private():
                        w, _ = self._train(federation, w, near, ~drawn, work, key, tick)
                c, known = centres(v * sent.unsqueeze(1), w, c), known | sent
        assert w is not None
        labels = torch.where(known, u.argmax(1), -1).cpu().numpy()
        answer = Answer.of(labels, c, w)
        empty = sorted(set(range(self.k)) - set(labels.tolist()))
        notes = {"importance": u.tolist(), "empty": empty}
        run.record("FEDSOFT", Partition(labels), w, notes=notes)
        return answer

    def _train(
        self, federation: Counted, w: Tensor, near: Tensor, chosen: Tensor, work: Work, key: Key,
        tick: Tick,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The clients' models ``[m, P]``, of which the ``chosen`` ``[m]`` train, pulled to near.

        Also which of them were sent: ``[m]``.
        """
        who = chosen.nonzero().flatten().tolist()
        sent = torch.zeros(len(w), dtype=torch.bool, device=w.device)
        if not who:
            return w, sent
        rows = federation.fit(w[who], who, work, key, tick, near[who])
        sent[who] = torch.tensor(heard(federation, rows, who), device=w.device)
        rows = check_finite(federation, rows, who, "training", otherwise=w[who])
        return w.index_copy(0, torch.tensor(who, device=w.device), rows), sent


def importance(shares: Tensor, sigma: float) -> Tensor:
    """U ``[m, k]``: the shares of a client's samples that fit each centre best, at least sigma.

    >>> importance(torch.tensor([[0.75, 0.25, 0.0]]), sigma=0.25)
    tensor([[0.6000, 0.2000, 0.2000]])
    """
    u = shares.clamp(min=sigma)
    return u / u.sum(1, keepdim=True)


def aggregation_weights(u: Tensor, sizes: Tensor) -> Tensor:
    """V ``[m, k]``: how much each client counts in each centre, ``u_is n_i`` divided by its sum."""
    counted = u * sizes.to(u.device, u.dtype).unsqueeze(1)
    return counted / counted.sum(0)


def centres(v: Tensor, w: Tensor, before: Tensor) -> Tensor:
    """Means ``[k, P]`` of rows ``[m, P]`` with weights ``[m, k]``; as before where all are 0."""
    total = v.sum(0).unsqueeze(1)
    return torch.where(total > 0, v.T @ w / total.clamp(min=1e-30), before)


def selected(v: Tensor, draws: int, key: Key) -> Tensor:
    """How often each client is drawn for each centre with probabilities v, of ``draws``: [m, k]."""
    lots = bits(streams(key, client_words([f"centre {s}" for s in range(v.shape[1])])), draws)
    chances = (lots >> 11 & (2**53 - 1)).double() / 2**53  # [k, draws]
    edges = v.cpu().double().cumsum(0).T.contiguous()  # [k, m]
    drawn = torch.searchsorted(edges, chances * edges[:, -1:], right=True)
    count = torch.zeros_like(edges).scatter_add_(1, drawn, torch.ones_like(chances))
    return (count.T / draws).to(v)
