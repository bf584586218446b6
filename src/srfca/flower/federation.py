"""Real clients, each with its own data on its own machine, over Flower."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

import torch
from flwr.app import Array
from flwr.serverapp import Grid
from torch import Tensor, nn

from srfca.errors import InputError, require
from srfca.federation.base import Focus, Mixture, Sample, Scores, Split, Tick, Wire, Work, silent
from srfca.flower.post import Ask, Member, Post
from srfca.flower.records import Value, name_of, pack
from srfca.models.rows import Layout, make_module
from srfca.random import Key

FEW = 16
"""Who is to be scored with one of so few models is asked about all of them: it soon would be."""
PATIENCE = 60.0
"""Seconds that a federation waits for all of the clients that it had before."""
REMEMBERED = 2**20
"""Losses that the server remembers."""

Figures = tuple[float, float]
"""Loss and accuracy."""
Due = Mapping[str, tuple[tuple[int, ...], torch.dtype]]
_NOTHING = (torch.nan, torch.nan)


class FlowerFederation:
    """A federation of clients that are Flower nodes.

    Every call is one message to each of the clients that it concerns. Models go by their names, a
    hash of their numbers: a client is not sent one that it has, and the server does not ask twice
    for the loss of the same model on the same client's data. A client that does not answer, or not
    as it should, is an absence (``wire``), and what it was asked for is NaN.

    Args:
        grid: Flower's, as a ``ServerApp`` is given it.
        model: As of ``Simulation``, the same as the clients'.
        clients: How many clients make the federation: it waits for them. Or the ``members`` that
            it had before: it waits for them a minute, and then for ``min_clients`` of them.
        min_clients: With fewer of them connected a run pauses; None is half of them.
        timeout: Seconds that clients have for an answer.
    """

    def __init__(
        self,
        grid: Grid,
        model: nn.Module | Callable[[], nn.Module],
        *,
        clients: int | Sequence[Member],
        min_clients: int | None = None,
        timeout: float = 3600.0,
    ) -> None:
        count = clients if isinstance(clients, int) else len(clients)
        require(count >= 1, f"clients must be at least 1, not {count}")
        least = -(-count // 2) if min_clients is None else min_clients
        require(
            1 <= least <= count, f"min_clients must be from 1 to {count} (clients), not {least}"
        )
        require(timeout > 0, f"timeout must be positive, not {timeout}")
        self._model = model
        self._layout = Layout.of(make_module(model, seed=0))
        self._like = self.initial(0)
        self.post = Post(grid, self._like, timeout, least)
        self._known: OrderedDict[tuple[str, str], dict[str, Figures]] = OrderedDict()
        self._sample: Sample | None = None
        self._given: dict[str, tuple[str, int]] = {}
        if isinstance(clients, int):
            self.post.gather(clients)
            here = self.post.ready(self.post.members)
            self.clients: tuple[str, ...] = tuple(sorted(here, key=_order)[:clients])
            self.post.splits = tuple(self.splits)
        else:
            self.post.members |= {member.client: replace(member, node=0) for member in clients}
            self.clients = tuple(member.client for member in clients)
            self.post.splits = tuple(self.splits)
            self.post.regather(self.clients, PATIENCE)

    def __repr__(self) -> str:
        return f"FlowerFederation({len(self.clients)} clients, P = {self._layout.length})"

    @property
    def members(self) -> list[Member]:
        """The clients as they have introduced themselves."""
        return [self.post.members[client] for client in self.clients]

    @property
    def sizes(self) -> Tensor:
        """``[m]`` training samples of each client, without the validation samples."""
        return self._sizes("train", range(len(self.clients)))

    @property
    def splits(self) -> Sequence[Split]:
        """What all of the clients hold."""
        every: tuple[Split, ...] = ("train", "validation", "test")
        return tuple(s for s in every if all(s in member.sizes for member in self.members))

    @property
    def layers(self) -> Mapping[str, slice]:
        """Where each layer lies in a row."""
        return self._layout.layers

    @property
    def wire(self) -> Wire:
        """What has gone over the wire, and who did not answer."""
        return self.post.wire

    def newcomers(self) -> list[str]:
        """Clients that have come since the federation was made."""
        self.post.look()
        return self.post.ready(sorted(set(self.post.members) - set(self.clients), key=_order))

    def admit(self, newcomers: Sequence[str]) -> None:
        """Take clients in, after those there are."""
        for client in newcomers:
            require(client in self.post.members, f"client {client!r} has not come")
            require(client not in self.clients, f"client {client!r} is in the federation already")
        self.clients += tuple(newcomers)

    def forget_losses(self) -> None:
        """Ask for losses anew: clients may have other data than before."""
        self._known.clear()

    def fingerprint(self) -> str:
        """Nothing is known here of what the clients hold."""
        return ""

    def initial(self, seed: int) -> Tensor:
        """``[P]`` w0."""
        return self._layout.row(make_module(self._model, seed))

    def fit(
        self,
        starts: Tensor,
        clients: Sequence[int],
        work: Work,
        key: Key,
        tick: Tick = silent,
        anchors: Tensor | None = None,
        focus: Focus | None = None,
    ) -> Tensor:
        """``[c, P]`` each client trains from its row: one message, whatever it trains."""
        given = {"starts": starts} if anchors is None else {"starts": starts, "anchors": anchors}
        values: dict[str, Value] = {
            "work": json.dumps(asdict(work)),
            "key": json.dumps([key.seed, key.purpose, key.round]),
        }
        rows = self._rows("fit", given, clients, values, focus)
        tick(len(clients) * len(work.span(key.round)))
        return rows

    def gradients(self, at: Tensor, clients: Sequence[int]) -> Tensor:
        """``[c, P]`` each client's gradient at its row, over all of its training samples."""
        return self._rows("gradients", {"at": at}, clients, {})

    def losses(
        self,
        models: Tensor,
        clients: Sequence[int],
        split: Split = "train",
        sample: Sample | None = None,
    ) -> Tensor:
        """``[k, c]`` mean loss of every model on every client's samples, or on some of them."""
        require(
            sample is None or split == "train", f"only training data are sampled here, not {split}"
        )
        if split == "train":
            self._sample = sample
        names, table = self._named(models)
        who = [self.clients[client] for client in clients]
        figures = self._figures(dict.fromkeys(who, _distinct(names)), table, split)
        rows = [[figures.get((name, client), _NOTHING)[0] for client in who] for name in names]
        found = torch.tensor(rows, dtype=torch.float64).view(len(names), len(who))
        return found.to(models.dtype)

    def shares(self, models: Tensor | Mixture, clients: Sequence[int]) -> Tensor:
        """``[c, k]`` the share of each client's training samples that each model accounts for."""
        rows = models.models if isinstance(models, Mixture) else models
        names, table = self._named(rows)
        due: Due = {"shares": ((1, len(rows)), torch.float64)}
        asks = {self.clients[c]: _about(models, names, at, due) for at, c in enumerate(clients)}
        answers = self._exchange("shares", asks, table)
        unknown = {"shares": torch.full((1, len(rows)), torch.nan, dtype=torch.float64)}
        found = [answers.get(self.clients[client], unknown)["shares"] for client in clients]
        return torch.cat(found).to(rows.dtype)

    def scores(
        self, models: Tensor | Mixture, clients: Sequence[int], split: Split = "test"
    ) -> Scores:
        """Loss and accuracy of each client's own row ``[c, P]``, or mixture, on its own data."""
        self._require(split)
        who = [self.clients[client] for client in clients]
        if isinstance(models, Mixture):
            names, table = self._named(models.models)
            due: Due = {"scores": ((1, 2), torch.float64)}
            asks = {
                client: _about(models, names, at, due, {"split": split})
                for at, client in enumerate(who)
            }
            answers = self._exchange("scores", asks, table)
            unknown = {"scores": torch.full((1, 2), torch.nan, dtype=torch.float64)}
            found = torch.cat([answers.get(client, unknown)["scores"] for client in who])
        else:
            names, table = self._named(models)
            few = split == "validation" and len(set(names)) <= FEW
            wanted: dict[str, list[str]] = {client: [] for client in who}
            for name, client in zip(names, who, strict=True):
                wanted[client] += _distinct(names) if few and not wanted[client] else []
                wanted[client] += _distinct([name]) if not few else []
            figures = self._figures(wanted, table, split, accuracy=True)
            own = [figures.get(pair, _NOTHING) for pair in zip(names, who, strict=True)]
            found = torch.tensor(own, dtype=torch.float64).view(len(who), 2)
        classes = all(self.post.members[client].classes for client in who)
        accuracy = found[:, 1] if classes else None
        return Scores(found[:, 0], accuracy, self._sizes(split, clients))

    def subspaces(self, clients: Sequence[int], rank: int) -> Tensor:
        """``[c, features, rank]`` leading left singular vectors of each client's inputs."""
        features = {self.post.members[self.clients[client]].features for client in clients}
        require(len(features) == 1, f"clients have inputs of {sorted(features)} features")
        shape = (1, features.pop(), rank)
        ask = Ask({"subspaces": (shape, torch.float64)}, {"rank": rank})
        asks = {self.clients[client]: ask for client in clients}
        answers = self._exchange("subspaces", asks, {})
        unknown = {"subspaces": torch.full(shape, torch.nan, dtype=torch.float64)}
        bases = [answers.get(self.clients[client], unknown)["subspaces"] for client in clients]
        return torch.cat(bases).to(self._like.dtype)

    def keep(self, models: Tensor, clients: Sequence[int] | None = None) -> None:
        """Give clients, all or some, their models ``[c, P]`` in the end, if they want them.

        One that has its model is not sent it again, unless it has started anew.
        """
        names, table = self._named(models)
        who = self.clients if clients is None else [self.clients[client] for client in clients]
        members = self.post.members
        asks = {
            client: Ask({}, rows={"models": [name]})
            for client, name in zip(who, names, strict=True)
            if name is not None and members[client].receives
            and self._given.get(client) != (name, members[client].node)
        }  # fmt: skip
        for client in self._exchange("keep", asks, table):
            self._given[client] = (asks[client].names[0], members[client].node)

    def ready(self) -> list[int]:
        """Clients that are connected and owe no answer."""
        self.post.look()
        here = set(self.post.ready(self.clients))
        return [place for place, client in enumerate(self.clients) if client in here]

    def _rows(
        self,
        task: str,
        given: Mapping[str, Tensor],
        clients: Sequence[int],
        values: Mapping[str, Value],
        focus: Focus | None = None,
    ) -> Tensor:
        """A row from each client for each that it is given: ``[c, P]``; one message to a client."""
        table: dict[str, Array] = {}
        named: dict[str, list[str | None]] = {}
        for role, tensor in given.items():
            named[role], packed = self._named(tensor)
            table |= packed
        mixture: list[str] = []
        if focus is not None:
            names, packed = self._named(focus.mixture.models)
            mixture, table = [str(name) for name in names], table | packed
        places: dict[str, list[int]] = {}
        for at, client in enumerate(clients):
            if all(names[at] is not None for names in named.values()):
                places.setdefault(self.clients[client], []).append(at)
        asks = {}
        for name, mine in places.items():
            parts = {role: [str(names[at]) for at in mine] for role, names in named.items()}
            own = dict(values)
            if focus is not None:
                parts["mixture"] = mixture
                own["weights"] = focus.mixture.weights[mine].double().flatten().tolist()
                own["component"] = focus.component[mine].tolist()
            due: Due = {"rows": ((len(mine), len(self._like)), self._like.dtype)}
            asks[name] = Ask(due, own, parts)
        rows = self._like.new_full((len(clients), len(self._like)), torch.nan)
        answers = self._exchange(task, asks, table)
        if not answers and len(asks) >= self.post.min_clients:
            reasons = Counter(absence.why for absence in self.wire.absences[-len(asks) :])
            [(why, _)] = reasons.most_common(1)
            raise InputError(
                f"none of {len(asks)} clients answers {task}: {why} "
                "(if training has diverged, lower lr, or set clip)"
            )
        for name, answer in answers.items():
            rows[places[name]] = answer["rows"]
        return rows

    def _figures(
        self,
        wanted: Mapping[str, list[str]],
        table: Mapping[str, Array],
        split: Split,
        accuracy: bool = False,
    ) -> Mapping[tuple[str | None, str], Figures]:
        """Loss and accuracy by (model, client), of the models that are wanted from each client.

        Training losses, on the sample that was last asked for, and held-out scores are remembered;
        clients send both when asked for one.
        """
        self._require(split)
        if split == "test" or (split == "train" and accuracy):
            return self._scored(wanted, table, split)
        asks = {}
        for client, names in wanted.items():
            kind = self._kind(client) if split == "train" else split
            new = [name for name in names if kind not in self._known.get((name, client), {})]
            due: dict[str, tuple[tuple[int, ...], torch.dtype]]
            due = {"losses": ((len(new),), torch.float64)}
            if "validation" in self.post.members[client].sizes:
                due["validation"] = ((len(new), 2), torch.float64)
            if new:
                asks[client] = Ask(due, self._sampled(client), {"models": new})
        for client, answer in self._exchange("losses", asks, table).items():
            trained = answer["losses"].tolist()
            held = answer["validation"].tolist() if "validation" in answer else [()] * len(trained)
            for name, loss, scores in zip(asks[client].names, trained, held, strict=True):
                known = self._known.setdefault((name, client), {})
                known |= {self._kind(client): (loss, torch.nan), "validation": scores}
        found: dict[tuple[str | None, str], Figures] = {}
        for client, names in wanted.items():
            kind = self._kind(client) if split == "train" else split
            for name in names:
                known = self._known.get((name, client), {})
                if kind in known:
                    found[name, client] = known[kind]
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found

    def _sampled(self, client: str) -> dict[str, Value]:
        """The sample of a client's data that losses are now measured on; nothing if it is all."""
        sample = self._sample
        if sample is None or self.post.members[client].sizes["train"] <= sample.size:
            return {}
        return {"samples": sample.size, "seed": sample.seed}

    def _kind(self, client: str) -> str:
        """What training losses are remembered as: those on other samples are others."""
        return "/".join(["train", *map(str, self._sampled(client).values())])

    def _scored(
        self, wanted: Mapping[str, list[str]], table: Mapping[str, Array], split: Split
    ) -> dict[tuple[str | None, str], Figures]:
        asks = {
            client: Ask(
                {"scores": ((len(names), 2), torch.float64)}, {"split": split}, {"models": names}
            )
            for client, names in wanted.items()
            if names
        }
        return {
            (name, client): (loss, accuracy)
            for client, answer in self._exchange("scores", asks, table).items()
            for name, (loss, accuracy) in zip(
                asks[client].names, answer["scores"].tolist(), strict=True
            )
        }

    def _exchange(
        self, task: str, asks: Mapping[str, Ask], table: Mapping[str, Array]
    ) -> dict[str, dict[str, Tensor]]:
        ordered = {client: asks[client] for client in self.clients if client in asks}
        return self.post.exchange(task, ordered, table, self.clients) if ordered else {}

    def _named(self, rows: Tensor) -> tuple[list[str | None], dict[str, Array]]:
        """The names of models ``[k, P]``, None if one is not known, and the models by name."""
        length = len(self._like)
        require(
            rows.ndim == 2 and rows.shape[1] == length,
            f"models must be rows of length {length}, not of shape {tuple(rows.shape)}",
        )
        names: list[str | None] = []
        table: dict[str, Array] = {}
        same = len(rows) > 1 and rows.stride(0) == 0
        for row in rows[:1] if same else rows:
            if not bool(row.isfinite().all()):
                names.append(None)
                continue
            packed = pack(row)
            name = name_of(packed)
            names.append(name)
            table.setdefault(name, packed)
        return (names * len(rows) if same else names), table

    def _sizes(self, split: Split, clients: Sequence[int]) -> Tensor:
        members = (self.post.members[self.clients[client]] for client in clients)
        return torch.tensor([member.sizes.get(split, 0) for member in members])

    def _require(self, split: Split) -> None:
        held = ", ".join(self.splits)
        require(
            split in self.splits,
            f"the clients of this federation have no {split} data: only {held}",
        )


def _about(
    models: Tensor | Mixture,
    names: Sequence[str | None],
    at: int,
    due: Due,
    values: Mapping[str, Value] | None = None,
) -> Ask:
    """A question about models, or about the mixture of the client at this place."""
    own, known = dict(values or {}), _distinct(names, unique=False)
    if not isinstance(models, Mixture):
        return Ask(due, own, {"models": known})
    own["weights"] = models.weights[at].double().tolist()
    return Ask(due, own, {"mixture": known})


def _distinct(names: Sequence[str | None], unique: bool = True) -> list[str]:
    known = [name for name in names if name is not None]
    return list(dict.fromkeys(known)) if unique else known


def _order(client: str) -> tuple[bool, int, str]:
    """Numbers by their value, then names."""
    number = client.isascii() and client.isdigit()
    return (not number, int(client) if number else 0, client)
