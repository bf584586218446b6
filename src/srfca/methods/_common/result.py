"""What a method returns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor

from srfca._version import __version__
from srfca.clustering.partition import Partition
from srfca.errors import InputError, require
from srfca.federation.coordinates import Coordinates
from srfca.federation.middleware.counting import Budget
from srfca.federation.mixture import Mixture
from srfca.federation.protocol import Federation
from srfca.federation.replies import ClientScores, as_clients
from srfca.federation.requests import Losses, Personal, Scores, Split
from srfca.files import replace_file, writable_folder

FORMAT = 2
LIMIT = 4.0
"""Standard deviations above its clients' mean loss at which a cluster ends."""

_OPTIONAL = (
    "individual_models", "mixture_weights", "fine_tuned_models", "fine_tuned_steps", "loss_limits",
)  # fmt: skip
"""Tensors that a result may lack."""


@dataclass(frozen=True)
class Stage:
    """One stage of a run.

    Args:
        name: ONE_SHOT, RECLUSTER 1, ...
        labels: Cluster of each client after it, -1 for none.
        seconds: How long it took.
        loss: Mean over the clients of their model's loss on their held-out data.
        accuracy: The same for accuracy; None if the targets are not classes.
        budget: What it cost the clients.
        notes: What it decided and why: the threshold, its candidates, joined clusters, ...
        distances: ``[m, m]`` between the clients' local models, NaN if unknown.
    """

    name: str
    labels: tuple[int, ...]
    seconds: float
    loss: float | None = None
    accuracy: float | None = None
    budget: Budget = field(default_factory=Budget)
    notes: Mapping[str, Any] = field(default_factory=dict)
    distances: np.ndarray | None = None

    @property
    def partition(self) -> Partition:
        """The labels as a partition."""
        return Partition(self.labels)


@dataclass(frozen=True, eq=False)
class Assignment:
    """The clusters of new clients.

    Args:
        labels: ``[c]`` cluster of each, -1 if none fits or the client did not reply.
        losses: ``[c, k]`` loss of each cluster's model on each client's data, NaN if it did not
            reply.
    """

    labels: NDArray[np.int64]
    losses: Tensor


def models_of_clients(models: Tensor, labels: NDArray[np.int64]) -> Tensor:
    """Return the model of each client, NaN for one in no cluster: ``[m, P]`` from ``[k, P]``."""
    rows = models[torch.tensor(labels, device=models.device)]
    if (labels < 0).any():
        rows[torch.tensor(labels < 0, device=models.device)] = torch.nan
    return rows


@dataclass(frozen=True, eq=False)
class Result:
    """A model for every client: that of its cluster, an individual one, or a mixture.

    Args:
        method: Name of the method.
        parameters: Its parameters.
        seed: Of the run.
        client_ids: The clients.
        labels: ``[m]`` the cluster of each client, -1 for none.
        models: ``[k, P]`` the clusters' models.
        individual_models: ``[m, P]``, if the method gives each client a model.
        mixture_weights: ``[m, k]``, if clients predict with mixtures.
        fine_tuned_models: ``[m, P]``, if clients fine-tuned (``fine_tune_steps``).
        fine_tuned_steps: ``[m]`` steps of that; a client of 0 steps keeps what it had.
        personal: Coordinates that each client kept to itself, if any. Without individual models
            the server does not know them: ``scores`` asks the clients to fill them in.
        history: The stages of the run.
        clustered: Whether the method finds clusters.
        loss_limits: ``[k]`` the loss beyond which a client does not belong to a cluster.
    """

    method: str
    parameters: Mapping[str, Any]
    seed: int
    client_ids: tuple[str, ...]
    labels: NDArray[np.int64]
    models: Tensor
    individual_models: Tensor | None = None
    mixture_weights: Tensor | None = None
    fine_tuned_models: Tensor | None = None
    fine_tuned_steps: Tensor | None = None
    personal: Personal | None = None
    history: tuple[Stage, ...] = ()
    clustered: bool = True
    loss_limits: Tensor | None = None

    @property
    def labels_(self) -> NDArray[np.int64]:
        """``[m]`` the cluster of each client, under scikit-learn's name."""
        return self.labels

    @property
    def partition(self) -> Partition:
        """The labels as a partition."""
        return Partition(self.labels)

    @property
    def client_models(self) -> Tensor:
        """``[m, P]`` the model of each client before fine-tuning; of a mixture, the largest part.

        NaN for a client that is in no cluster. Personal coordinates that the server does not know
        are those of the initial model.
        """
        if self.individual_models is not None:
            return self.individual_models
        return models_of_clients(self.models, self.labels)

    @property
    def final_models(self) -> Tensor:
        """``[m, P]`` the final model of each client: fine-tuned, if there was fine-tuning."""
        return self.client_models if self.fine_tuned_models is None else self.fine_tuned_models

    @property
    def predictors(self) -> Tensor | Mixture:
        """What clients predict with before fine-tuning: their models, or their mixtures."""
        if self.mixture_weights is None:
            return self.client_models
        return Mixture(self.models, self.mixture_weights)

    @property
    def budget(self) -> Budget:
        """What the run cost the clients, fine-tuning included."""
        return sum((stage.budget for stage in self.history), Budget())

    def scores(
        self, federation: Federation, split: Split = "test", fine_tuned: bool = False
    ) -> ClientScores:
        """Score each client's model on the client's data.

        Args:
            federation: The clients of this result.
            split: Which of their data.
            fine_tuned: Score the models after fine-tuning.

        Returns:
            Loss and accuracy ``[m]``; NaN for clients that did not reply, or have no model.
        """
        require(
            not fine_tuned or self.fine_tuned_models is not None,
            "there are no fine-tuned models: set fine_tune_steps",
        )
        if not fine_tuned or self.fine_tuned_models is None:
            return self._scores(federation, self.predictors, split)
        after = self._scores(federation, self.fine_tuned_models, split)
        if self.mixture_weights is None or self.fine_tuned_steps is None:
            return after
        before = self._scores(federation, self.predictors, split)
        return after.where(self.fine_tuned_steps > 0, before)

    def _scores(
        self, federation: Federation, predictors: Tensor | Mixture, split: Split
    ) -> ClientScores:
        everyone = np.arange(len(federation.client_ids))
        personal = self.personal if self.individual_models is None else None
        return federation.ask(Scores(everyone, predictors, split, personal)).fill(torch.nan)

    def __repr__(self) -> str:
        return (
            f"Result({self.method}, {len(self.client_ids)} clients, {len(self.models)} models, "
            f"seed {self.seed})"
        )

    def summary(self) -> str:
        """Return a few lines to read: the clusters, and how each stage left them."""
        lines = [f"{self.method}, seed {self.seed}: {len(self.client_ids)} clients"]
        if self.clustered:
            sizes = ", ".join(str(size) for size in self.partition.sizes)
            count = self.partition.num_clusters
            lines[0] += f" in {count} cluster{'s' * (count != 1)} of {sizes}"
        width = max((len(stage.name) for stage in self.history), default=0)
        for stage in self.history:
            partition = stage.partition
            unclustered = len(partition.unclustered)
            text = f"  {stage.name:<{width}}  {partition.num_clusters:>4} clusters"
            text += f", {unclustered} unclustered" if unclustered else ""
            text += f", validation loss {stage.loss:.4g}" if stage.loss is not None else ""
            text += f", accuracy {stage.accuracy:.1%}" if stage.accuracy is not None else ""
            lines.append(f"{text}, {stage.seconds:.1f} s")
        return "\n".join(lines)

    def assign(self, newcomers: Federation, clients: Iterable[int] | None = None) -> Assignment:
        """Assign clients of any federation with the same model to clusters, by their loss.

        A client whose least loss is beyond the cluster's limit (``loss_limits``: about 4 standard
        deviations above what the cluster's clients have on held-out data) gets the label -1.

        Args:
            newcomers: A federation.
            clients: Which of its clients; None is all.

        Raises:
            InputError: If the method finds no clusters, or the models have another length.
        """
        require(self.clustered, f"{self.method} has no clusters to assign clients to")
        models = self.models[: self.partition.num_clusters]
        length = len(newcomers.initial_model(self.seed))
        require(
            models.shape[1] == length,
            f"the result has models of length {models.shape[1]}, but the clients' have {length}",
        )
        everyone = range(len(newcomers.client_ids))
        replies = newcomers.ask(
            Losses(as_clients(everyone if clients is None else clients), models)
        )
        values = replies.values.cpu()
        labels = np.full(len(replies.requested), -1, dtype=np.int64)
        labels[replies.answered] = within_limits(values, self.loss_limits)
        losses = replies.fill(values.new_full((len(labels), len(models)), torch.nan)).cpu()
        return Assignment(labels, losses)

    def save(self, folder: str | Path) -> Path:
        """Write ``result.json`` and ``tensors.safetensors``, each atomically."""
        folder = writable_folder(Path(folder))
        tensors = {
            name: rows.detach().cpu().contiguous()
            for name in ("models", *_OPTIONAL)
            if (rows := getattr(self, name)) is not None
        }
        if self.individual_models is self.models:
            tensors["individual_models"] = tensors["individual_models"].clone()
        history = []
        for number, stage in enumerate(self.history):
            if stage.distances is not None:
                tensors[f"distances/{number}"] = torch.as_tensor(stage.distances).contiguous()
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
            "client_ids": list(self.client_ids),
            "labels": self.labels.tolist(),
            "personal": None if self.personal is None else asdict(self.personal),
            "history": history,
        }
        replace_file(folder / "tensors.safetensors", packed)
        replace_file(folder / "result.json", (json.dumps(content, indent=1) + "\n").encode())
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Result:
        """Read what ``save`` wrote.

        Raises:
            InputError: If the folder holds no result, or a damaged one.
        """
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
            return cls._restore(content, load(packed))
        except (LookupError, TypeError, AttributeError) as error:
            raise InputError(f"{folder / 'result.json'} is damaged: {error!r}") from error

    @classmethod
    def _restore(cls, content: dict[str, Any], tensors: Mapping[str, Tensor]) -> Result:
        history = tuple(
            Stage(
                **{
                    **entry,
                    "labels": tuple(entry["labels"]),
                    "budget": Budget(**entry["budget"]),
                },
                distances=None if (d := tensors.get(f"distances/{number}")) is None else d.numpy(),
            )
            for number, entry in enumerate(content["history"])
        )
        return cls(
            method=content["method"],
            parameters=content["parameters"],
            seed=content["seed"],
            client_ids=tuple(content["client_ids"]),
            labels=np.asarray(content["labels"]),
            models=tensors["models"],
            personal=_restore_personal(content["personal"]),
            history=history,
            clustered=content["clustered"],
            **{name: tensors.get(name) for name in _OPTIONAL},
        )


def _restore_personal(content: dict[str, Any] | None) -> Personal | None:
    if content is None:
        return None
    ranges = tuple((start, stop) for start, stop in content["coordinates"]["ranges"])
    return Personal(Coordinates(ranges), content["seed"], content["purpose"])


def is_intact(folder: Path) -> bool:
    """Tell whether the tensors in a folder are those that its ``result.json`` describes."""
    content = json.loads((folder / "result.json").read_bytes())
    packed = (folder / "tensors.safetensors").read_bytes()
    return bool(sha256(packed).hexdigest() == content["tensors_sha256"])


def loss_limits(federation: Federation, models: Tensor, partition: Partition) -> Tensor | None:
    """Return the loss beyond which a client does not belong to a cluster, from held-out data.

    It is the mean of the cluster's clients plus ``LIMIT`` standard deviations. Clusters may be
    small, so one deviation, relative to the mean, is estimated for all of them, with the quantile
    of Student's t. If every client is a cluster of its own there is no deviation to add.

    Returns:
        ``[k]``, or None if the federation holds nothing out.
    """
    from scipy.special import ndtr, stdtrit

    if "validation" not in federation.splits:
        return None
    models = models[: partition.num_clusters]
    everyone = np.arange(len(federation.client_ids))
    replies = federation.ask(Losses(everyone, models, "validation"))
    answered = replies.values.cpu()
    losses = replies.fill(answered.new_full((len(everyone), len(models)), torch.inf)).cpu()
    by_cluster = [losses[torch.as_tensor(members), c] for c, members in enumerate(partition)]
    finite = [values[values.isfinite()].double() for values in by_cluster]
    means = torch.stack([v.mean() if len(v) else v.new_tensor(torch.inf) for v in finite])
    sizes = torch.tensor([len(values) for values in finite])
    freedom = int((sizes - 1).clamp(min=0).sum())
    if freedom == 0:
        return means.to(losses)
    tiny = torch.finfo(means.dtype).tiny
    ratios = torch.cat([(v - v.mean()) / (v.mean().abs() + tiny) for v in finite])
    deviation = (ratios.square().sum() / freedom).sqrt() * (1 + 1 / sizes).sqrt()
    quantile = float(stdtrit(freedom, ndtr(LIMIT)))
    return (means + means.abs() * quantile * deviation).to(losses)


def within_limits(losses: Tensor, limits: Tensor | None) -> NDArray[np.int64]:
    """Return the cluster of each client's least loss, -1 if it is beyond the cluster's limit.

    Args:
        losses: ``[c, k]``; NaN counts as infinite.
        limits: ``[k]``, or None for no limits.

    Returns:
        ``[c]``

    >>> within_limits(torch.tensor([[3.0, 2.0], [1.0, 4.0]]), torch.ones(2)).tolist()
    [-1, 0]
    """
    losses = losses.masked_fill(losses.isnan(), torch.inf)
    smallest, labels = losses.min(1).values, losses.argmin(1)
    if limits is not None:
        labels = torch.where(smallest <= limits[labels], labels, -1)
    return np.asarray(labels.numpy())
