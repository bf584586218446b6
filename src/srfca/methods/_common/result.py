"""What a method returns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
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
from srfca.data.schema import Schema
from srfca.errors import InputError, require
from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import LocalTraining
from srfca.federation.middleware.counting import Budget
from srfca.federation.mixture import Mixture
from srfca.federation.moments import ClientLosses, unpack_outputs
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients, ClientScores, as_clients
from srfca.federation.requests import OutputMoments, Personal, Scores, Split
from srfca.files import replace_file, writable_folder
from srfca.methods._common.input_statistics import (
    InputStatistics,
    input_scores,
    input_statistics,
    place_by_inputs,
)
from srfca.methods._common.loss_limits import LossLimits
from srfca.methods._common.placement import paired_confidence, place_by_losses, placement_request

FORMAT = 3

_OPTIONAL = ("individual_models", "mixture_weights", "fine_tuned_models", "fine_tuned_steps")
"""Tensors that a result may lack."""
_STATISTICS: dict[str, type[LossLimits] | type[InputStatistics]] = {
    "loss_limits": LossLimits,
    "input_statistics": InputStatistics,
}
"""Statistics that a result may lack."""


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
        losses: ``[c, k]`` loss of each cluster's model on each client's data; NaN if the client did
            not reply, or was placed without labels.
        scores: ``[c, k]`` how unlike a cluster's clients a newcomer is, in standard deviations;
            beyond 4.25 with labels, or 3 without, it does not belong to the cluster. NaN if the
            client did not reply, or the result has no limits.
        confidence: ``[c]`` how sure the nearest cluster is against the next one, from 0 to 1; NaN
            if the client did not reply.
    """

    labels: NDArray[np.int64]
    losses: Tensor
    scores: NDArray[np.float64]
    confidence: NDArray[np.float64]


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
        loss_limits: What the losses of each cluster's clients are like on held-out data, to
            reject newcomers that belong to none.
        input_statistics: What their inputs look like, to place newcomers without labels
            (``with_input_statistics``).
        schema: How the clients' tables became tensors, if the federation knows.
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
    loss_limits: LossLimits | None = None
    input_statistics: InputStatistics | None = None
    schema: Schema | None = None

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
            lines[0] += f": {self.partition.describe()}"
        width = max((len(stage.name) for stage in self.history), default=0)
        for stage in self.history:
            partition = stage.partition
            unclustered = len(partition.unclustered)
            text = f"  {stage.name:<{width}}  {partition.num_clusters:>4} clusters"
            text += f", {unclustered} unclustered" if unclustered else ""
            text += f", validation loss {stage.loss:.4g}" if stage.loss is not None else ""
            text += f", accuracy {stage.accuracy:.1%}" if stage.accuracy is not None else ""
            lines.append(f"{text}, {stage.seconds:.1f} s")
        if self.decision is not None:
            lines.append(self.decision)
        return "\n".join(lines)

    @property
    def decision(self) -> str | None:
        """What was decided on held-out data, by how much and how surely; None if nothing was."""
        notes = (stage.notes for stage in reversed(self.history))
        return next((str(note["decision"]) for note in notes if "decision" in note), None)

    def assign(
        self, newcomers: Federation, clients: Iterable[int] | None = None, *, labels: bool = True
    ) -> Assignment:
        """Assign clients of any federation with the same model to clusters.

        With labels: each client to the cluster whose model has the least loss on its data. It gets
        the label -1 if its losses exceed those of the cluster's clients by more than their number
        of samples, and the differences between clients, explain.

        Without labels: by what the clients' inputs look like to the clusters' models. It needs
        ``with_input_statistics``. Where clusters differ by their labels alone, their inputs look
        alike, and the label is -1. docs/newcomers.md says how well both work.

        Args:
            newcomers: A federation. Without labels its targets are not read, so that they may be
                anything, such as zeros.
            clients: Which of its clients; None is all.
            labels: Whether the newcomers have labels.

        Raises:
            InputError: If the method finds no clusters, the models have another length, or
                statistics of inputs are missing.

        >>> from srfca import SRFCA, LocalTraining, Simulation, data, models
        >>> local = LocalTraining(steps=100, batch_size=10, lr=0.5)
        >>> network, digits = models.mlp(64, 32, 10), data.rotated_digits
        >>> fed = Simulation(digits(num_clients=16), network, validation=0.3)
        >>> result = SRFCA(local=local).fit(fed)
        >>> new = Simulation(digits(num_clients=4, seed=1), network)
        >>> result.assign(new).labels.tolist()
        [0, 1, 2, 3]
        >>> result.with_input_statistics(fed).assign(new, labels=False).labels.tolist()
        [0, 1, 2, 3]
        """
        require(self.clustered, f"{self.method} has no clusters to assign clients to")
        models = self.models[: self.partition.num_clusters]
        length = len(newcomers.initial_model(self.seed))
        require(
            models.shape[1] == length,
            f"the result has models of length {models.shape[1]}, but the clients' have {length}",
        )
        everyone = range(len(newcomers.client_ids))
        chosen = as_clients(everyone if clients is None else clients)
        if labels:
            return self._assign_by_losses(newcomers, chosen, models)
        return self._assign_by_inputs(newcomers, chosen, models)

    def _assign_by_losses(
        self, newcomers: Federation, clients: Clients, models: Tensor
    ) -> Assignment:
        request = placement_request(clients, models, newcomers.splits, self.loss_limits)
        replies = newcomers.ask(request)
        reported = ClientLosses.unpack(replies.values.cpu())
        labels, scores = place_by_losses(reported, self.loss_limits)
        confidence = paired_confidence(reported)
        return _assignment(replies.answered, labels, reported.mean, scores, confidence)

    def _assign_by_inputs(
        self, newcomers: Federation, clients: Clients, models: Tensor
    ) -> Assignment:
        statistics = self.input_statistics
        if statistics is None:
            raise InputError(
                "the result has no statistics of its clients' inputs, which newcomers without "
                "labels are compared with: result = result.with_input_statistics(federation), with "
                "the federation that it was found in"
            )
        splits: tuple[Split, ...] = ("train", "validation")
        held = tuple(split for split in splits if split in newcomers.splits)
        replies = newcomers.ask(OutputMoments(clients, models, held))
        scores = input_scores(statistics, unpack_outputs(replies.values.cpu()))
        labels, confidence = place_by_inputs(scores, statistics.alike.numpy())
        losses = torch.full(scores.shape, torch.nan, dtype=torch.float64)
        return _assignment(replies.answered, labels, losses, scores, confidence)

    def with_input_statistics(self, federation: Federation) -> Result:
        """Return the result with what is needed to place newcomers without labels.

        Every client of a cluster reports how often each cluster's model predicts each class on its
        held-out inputs, and mean and covariance of the outputs: no input and no label.

        Args:
            federation: The clients of this result.

        Raises:
            InputError: If the method finds no clusters, the clients are others, none replies, or
                the model has more than 256 outputs.
        """
        require(self.clustered, f"{self.method} has no clusters to describe")
        require(
            tuple(federation.client_ids) == self.client_ids,
            f"the federation has {len(federation.client_ids)} clients that are not the "
            f"{len(self.client_ids)} of the result: pass the federation that it was found in",
        )
        statistics = input_statistics(federation, self.models, self.partition)
        return replace(self, input_statistics=statistics)

    def adapt(self, federation: Federation, local: LocalTraining, rounds: int) -> Result:
        """Adapt the clusters to the data that clients have now (``srfca.methods.adaptation``).

        Args:
            federation: The same clients, whose data may have changed.
            local: How clients train.
            rounds: Rounds that every cluster trains on for.

        Raises:
            InputError: If the method finds no clusters, or the clients are others.
        """
        from srfca.methods.adaptation import adapt

        return adapt(self, federation, local, rounds)

    def save(self, folder: str | Path) -> Path:
        """Write ``result.json`` and ``tensors.safetensors``, each atomically."""
        folder = writable_folder(Path(folder))
        tensors = {
            name: rows.detach().cpu().contiguous()
            for name in ("models", *_OPTIONAL)
            if (rows := getattr(self, name)) is not None
        }
        for name in _STATISTICS:
            if (statistics := getattr(self, name)) is not None:
                parts = statistics.tensors()
                tensors |= {f"{name}/{part}": parts[part].contiguous() for part in parts}
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
            "schema": None if self.schema is None else self.schema.to_json(),
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
            schema=None if (s := content.get("schema")) is None else Schema.from_json(s),
            **_restore_tensors(tensors),
        )


def _restore_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the tensors and statistics that a result may lack, by the name of its field."""
    restored: dict[str, Any] = {name: tensors.get(name) for name in _OPTIONAL}
    for name, statistics in _STATISTICS.items():
        present = {key: tensors[key] for key in tensors if key.startswith(f"{name}/")}
        parts = {key.removeprefix(f"{name}/"): tensor for key, tensor in present.items()}
        restored[name] = statistics.from_tensors(parts) if parts else None
    return restored


def _assignment(
    answered: NDArray[np.bool_],
    labels: NDArray[np.int64],
    losses: Tensor,
    scores: NDArray[np.float64],
    confidence: NDArray[np.float64],
) -> Assignment:
    """Return an assignment from what is known of the clients that answered."""
    every_label = np.full(len(answered), -1, dtype=np.int64)
    every_label[answered] = labels

    def spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
        every = np.full((len(answered), *values.shape[1:]), np.nan)
        every[answered] = values
        return every

    every_loss = torch.from_numpy(spread(losses.double().numpy()))
    return Assignment(every_label, every_loss, spread(scores), spread(confidence))


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
