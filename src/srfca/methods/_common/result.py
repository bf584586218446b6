"""What a method returns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from srfca._version import __version__
from srfca.clustering.partition import Partition
from srfca.errors import InputError, require
from srfca.federation.base import Federation, Mixture, Scores, Split
from srfca.federation.counted import Budget
from srfca.files import replace_file, writable_folder

FORMAT = 1
REACH = 4.0
"""Standard deviations above its clients' mean loss at which a cluster ends."""


_OPTIONAL = ("own", "mixture", "tuned", "tuned_steps", "reach")
"""Tensors of a result that it may lack."""


@dataclass(frozen=True)
class Stage:
    """One stage of a run, as it left things."""

    name: str
    labels: tuple[int, ...]
    """Cluster of each client, -1 for one left out."""
    seconds: float
    loss: float | None = None
    """Mean over the clients of the loss of their model on their validation data."""
    accuracy: float | None = None
    budget: Budget = field(default_factory=Budget)
    """What it cost the clients."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the stage decided and why: the threshold, its candidates, what was joined, ..."""
    distances: np.ndarray | None = None
    """``[m, m]`` between the clients' own models, of ONE_SHOT."""

    @property
    def partition(self) -> Partition:
        """The labels as a partition."""
        return Partition(self.labels)


@dataclass(frozen=True)
class Assignment:
    """Where new clients belong."""

    labels: np.ndarray
    """``[c]`` cluster of each, -1 where none fits."""
    losses: Tensor
    """``[k, c]`` loss of each cluster's model on each new client's data."""


def models_of_clients(models: Tensor, labels: np.ndarray) -> Tensor:
    """The model of each client, NaN for one that is in no cluster: ``[m, P]`` from ``[k, P]``."""
    rows = models[torch.tensor(labels, device=models.device)]
    if (labels < 0).any():
        rows[torch.tensor(labels < 0, device=models.device)] = torch.nan
    return rows


@dataclass(frozen=True)
class Result:
    """A model for every client: client i has ``models[labels[i]]``, its own, or a mixture."""

    method: str
    parameters: Mapping[str, Any]
    seed: int
    clients: tuple[str, ...]
    labels: np.ndarray
    """``[m]``"""
    models: Tensor
    """``[k, P]``"""
    own: Tensor | None = None
    """``[m, P]`` the clients' own models, if the method gives each client one."""
    mixture: Tensor | None = None
    """``[m, k]`` how much of each model is in a client's mixture, if clients have mixtures."""
    tuned: Tensor | None = None
    """``[m, P]`` what each client made of its model by fine-tuning it (``personal_steps``)."""
    tuned_steps: Tensor | None = None
    """``[m]`` steps of that; with 0 a client keeps what it had, a mixture too."""
    history: tuple[Stage, ...] = ()
    clustered: bool = True
    """Whether the labels are an answer of the method, rather than its premise (Local, Global)."""
    reach: Tensor | None = None
    """``[k]`` the loss beyond which a client does not belong to a cluster."""

    @property
    def partition(self) -> Partition:
        """The labels as a partition."""
        return Partition(self.labels)

    @property
    def client_models(self) -> Tensor:
        """``[m, P]`` the model of each client before fine-tuning: the largest part of a mixture."""
        if self.own is not None:
            return self.own
        return models_of_clients(self.models, self.labels)

    @property
    def final_models(self) -> Tensor:
        """``[m, P]`` the model that each client ends up with: fine-tuned, if it was."""
        return self.client_models if self.tuned is None else self.tuned

    @property
    def predictors(self) -> Tensor | Mixture:
        """What clients predict with, before fine-tuning: their models, or their mixtures."""
        return self.client_models if self.mixture is None else Mixture(self.models, self.mixture)

    @property
    def budget(self) -> Budget:
        """What the method cost the clients, fine-tuning included."""
        return sum((stage.budget for stage in self.history), Budget())

    def scores(self, federation: Federation, split: Split = "test", tuned: bool = False) -> Scores:
        """How each client does with its model on its own data, before or after fine-tuning."""
        require(not tuned or self.tuned is not None, "no model was fine-tuned: set personal_steps")
        every = range(len(federation.clients))
        if not tuned or self.tuned is None:
            return federation.scores(self.predictors, every, split)
        after = federation.scores(self.tuned, every, split)
        if self.mixture is None or self.tuned_steps is None:
            return after
        return after.where(self.tuned_steps > 0, federation.scores(self.predictors, every, split))

    def __repr__(self) -> str:
        count = len(self.models)
        return (
            f"Result({self.method}, {len(self.clients)} clients, {count} models, seed {self.seed})"
        )

    def summary(self) -> str:
        """A few lines to read: the clusters, and how each stage left them."""
        lines = [f"{self.method}, seed {self.seed}: {len(self.clients)} clients"]
        if self.clustered:
            sizes = ", ".join(str(size) for size in self.partition.sizes)
            count = self.partition.num_clusters
            lines[0] += f" in {count} cluster{'s' * (count != 1)} of {sizes}"
        width = max((len(stage.name) for stage in self.history), default=0)
        for stage in self.history:
            found = stage.partition
            text = f"  {stage.name:<{width}}  {found.num_clusters:>4} clusters"
            text += f", {len(found.left_out)} left out" if len(found.left_out) else ""
            text += f", validation loss {stage.loss:.4g}" if stage.loss is not None else ""
            text += f", accuracy {stage.accuracy:.1%}" if stage.accuracy is not None else ""
            lines.append(f"{text}, {stage.seconds:.1f} s")
        return "\n".join(lines)

    def assign(self, newcomers: Federation, clients: Sequence[int] | None = None) -> Assignment:
        """Place clients, all or some, of any federation of the same model by their loss.

        A client whose loss is beyond the reach of the nearest cluster (``reach``: about 4 standard
        deviations above what its own clients have on validation data) is told so by -1. So is one
        that does not answer.
        """
        require(self.clustered, f"{self.method} has no clusters to assign clients to")
        models = self.models[: self.partition.num_clusters]
        length = len(newcomers.initial(self.seed))
        require(
            models.shape[1] == length,
            f"the result has models of length {models.shape[1]}, but the clients' have {length}",
        )
        clients = range(len(newcomers.clients)) if clients is None else clients
        losses = newcomers.losses(models, clients).cpu()
        return Assignment(in_reach(losses, self.reach), losses)

    def save(self, folder: str | Path) -> Path:
        """Write ``result.json`` and ``tensors.safetensors``; each appears whole or not at all."""
        folder = writable_folder(Path(folder))
        tensors = {
            name: rows.detach().cpu().contiguous()
            for name in ("models", *_OPTIONAL)
            if (rows := getattr(self, name)) is not None
        }
        if self.own is self.models:
            tensors["own"] = tensors["own"].clone()
        history = []
        for place, stage in enumerate(self.history):
            if stage.distances is not None:
                tensors[f"distances/{place}"] = torch.as_tensor(stage.distances).contiguous()
            entry = {"name": stage.name, "labels": stage.labels, "seconds": stage.seconds}
            entry |= {"loss": stage.loss, "accuracy": stage.accuracy, "notes": dict(stage.notes)}
            entry |= {"budget": asdict(stage.budget)}
            history.append(entry)
        packed = save(tensors)
        content = {
            "format": FORMAT,
            "tensors_sha256": sha256(packed).hexdigest(),
            "srfca": __version__,
            "method": self.method,
            "parameters": dict(self.parameters),
            "seed": self.seed,
            "clustered": self.clustered,
            "clients": list(self.clients),
            "labels": self.labels.tolist(),
            "history": history,
        }
        replace_file(folder / "tensors.safetensors", packed)
        replace_file(folder / "result.json", (json.dumps(content, indent=1) + "\n").encode())
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Result:
        """Read what ``save`` wrote."""
        folder = Path(folder)
        try:
            content = json.loads((folder / "result.json").read_bytes())
            packed = (folder / "tensors.safetensors").read_bytes()
        except OSError as error:
            raise InputError(f"{folder} holds no result: {error}") from error
        except ValueError as error:
            raise InputError(f"{folder / 'result.json'} is damaged: {error}") from error
        require(isinstance(content, dict), f"{folder / 'result.json'} is damaged: no object")
        require(
            content.get("format") == FORMAT,
            f"{folder}: format {content.get('format')} is not the {FORMAT} that this version reads",
        )
        require(
            sha256(packed).hexdigest() == content.get("tensors_sha256"),
            f"{folder / 'tensors.safetensors'} is damaged, or of another run than result.json",
        )
        try:
            return cls._of(content, load(packed))
        except (LookupError, TypeError, AttributeError) as error:
            raise InputError(f"{folder / 'result.json'} is damaged: {error!r}") from error

    @classmethod
    def _of(cls, content: dict[str, Any], tensors: Mapping[str, Tensor]) -> Result:
        history = tuple(
            Stage(
                **{
                    **entry,
                    "labels": tuple(entry["labels"]),
                    "budget": Budget(**entry["budget"]),
                },
                distances=None if (d := tensors.get(f"distances/{place}")) is None else d.numpy(),
            )
            for place, entry in enumerate(content["history"])
        )
        return cls(
            method=content["method"],
            parameters=content["parameters"],
            seed=content["seed"],
            clients=tuple(content["clients"]),
            labels=np.asarray(content["labels"]),
            models=tensors["models"],
            history=history,
            clustered=content["clustered"],
            **{name: tensors.get(name) for name in _OPTIONAL},
        )


def undamaged(folder: Path) -> bool:
    """Whether the models in a folder are those that its ``result.json`` is of."""
    content = json.loads((folder / "result.json").read_bytes())
    packed = (folder / "tensors.safetensors").read_bytes()
    return bool(sha256(packed).hexdigest() == content["tensors_sha256"])


def reach(federation: Federation, models: Tensor, partition: Partition) -> Tensor | None:
    """``[k]`` the loss beyond which a client does not belong to a cluster, from held-out data.

    The mean over the cluster's clients of their loss, and ``REACH`` standard deviations of a loss.
    Clusters may be small, so that one deviation, relative to the mean, is estimated for all of
    them, and allowed for by the quantile of Student's t; where every client is a cluster of its own
    there is none to add. None if the federation holds nothing out.
    """
    from scipy.special import ndtr, stdtrit

    if "validation" not in federation.splits:
        return None
    models = models[: partition.num_clusters]
    losses = federation.losses(models, range(len(federation.clients)), "validation").cpu()
    of_clusters = [losses[c, torch.as_tensor(members)] for c, members in enumerate(partition)]
    known = [own[own.isfinite()].double() for own in of_clusters]
    means = torch.stack([own.mean() if len(own) else own.new_tensor(torch.inf) for own in known])
    sizes = torch.tensor([len(own) for own in known])
    freedom = int((sizes - 1).clamp(min=0).sum())
    if freedom == 0:
        return means.to(losses)
    tiny = torch.finfo(means.dtype).tiny
    ratios = torch.cat([(own - own.mean()) / (own.mean().abs() + tiny) for own in known])
    deviation = (ratios.square().sum() / freedom).sqrt() * (1 + 1 / sizes).sqrt()
    farthest = float(stdtrit(freedom, ndtr(REACH)))
    return (means + means.abs() * farthest * deviation).to(losses)


def in_reach(losses: Tensor, limits: Tensor | None) -> np.ndarray:
    """The cluster of each client's least loss ``[k, c]``, -1 if beyond its reach or unknown: [c].

    >>> nan = torch.nan
    >>> in_reach(torch.tensor([[3.0, 1.0, nan], [2.0, 4.0, nan]]), torch.ones(2)).tolist()
    [-1, 0, -1]
    """
    known = losses.masked_fill(losses.isnan(), torch.inf)
    labels = known.argmin(0)
    if limits is not None:
        labels = torch.where(known.min(0).values <= limits[labels], labels, -1)
    return np.asarray(torch.where(losses.isnan().all(0), -1, labels).numpy())
