"""All clients on one machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from srfca.clustering.partition import Partition
from srfca.data.client_data import ClientData, Samples, hold_out
from srfca.data.schema import Schema
from srfca.engine.augment import Augmentation, AugmentationName, augmentation_named
from srfca.engine.autograd_training import train_by_autograd
from srfca.engine.backends.autograd import Precision, matmul_precision, precision_named
from srfca.engine.backends.select import select_network
from srfca.engine.evaluation import (
    Evaluation,
    Selection,
    all_samples,
    count_by_class,
    subsampled,
)
from srfca.engine.loss import Loss, LossName, constant_loss, loss_kind, loss_named
from srfca.engine.personal import PersonalStore
from srfca.engine.probe import check_labels, count_classes, probe
from srfca.engine.trainer import OptimizerStates, Trainer, TrainingTask
from srfca.errors import InputError, require, require_positive, require_seed
from srfca.federation.algorithms import Descent
from srfca.federation.bootstrap import bootstrap_streams
from srfca.federation.compression import ResidualStore
from srfca.federation.coordinates import Coordinates
from srfca.federation.data_moments import column_moments, columns_of
from srfca.federation.flat_samples import flatten_samples, inputs_of
from srfca.federation.mixture import Mixture
from srfca.federation.replies import Clients, ClientScores, Replies
from srfca.federation.replies import T as Value
from srfca.federation.requests import (
    MIN_CLASS_SAMPLES,
    BalancedLosses,
    BootstrapLosses,
    ClassCounts,
    Collect,
    DataMoments,
    Gradients,
    Losses,
    LossMoments,
    OutputMoments,
    Outputs,
    Request,
    Scores,
    SharedSamples,
    Shares,
    Split,
    Subsample,
    Subspaces,
    Train,
)
from srfca.models.architecture import Architecture
from srfca.models.rows import frozen_digest, make_module
from srfca.models.signature import Signature
from srfca.random import Key, client_words, streams


class Simulation:
    """A federation of simulated clients.

    Args:
        data: What the clients hold.
        model: A callable that makes the module (w0 then depends on the seed), or a module, whose
            weights are then w0. Parameters that do not require a gradient are held once, and are
            those of the module made with seed 0.
        loss: ``auto``, ``cross_entropy``, ``squared_error``, or a callable from outputs and targets
            to one loss per sample.
        augment: ``none``, ``cifar`` (flip, shift, cutout), ``handwriting`` (rotate, scale, shear
            and shift a little), or a callable (``Augmentation``) that changes training images at
            random. Evaluation never uses it.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda``, ...
        precision: Precision of matrix products and convolutions: ``float32``, ``tf32`` or ``bf16``
            (docs/speed.md shows their effect); ``auto`` is tf32 on a GPU, float32 elsewhere. Rows
            are float32.
        compile: Train through ``torch.compile``, on a GPU. It takes time at first, and pays off for
            long trainings of convolutional networks.
        block_size: Clients that train together; None lets the engine choose. Results do not depend
            on it.
        validation: The fraction of each client's training samples that is held out.
        seed: Decides which ones.
        negative_losses: Whether ``loss`` may be negative. If not, a reply with a negative loss is
            refused.

    Attributes:
        architecture: What a row needs to become a module.
        signature: What the module takes, and what its outputs mean.
        num_classes: The number of classes, None unless the clients classify: by cross entropy,
            with one label for each sample.

    Raises:
        InputError: If model, loss and data do not fit together.

    >>> from srfca import LocalTraining, data, models
    >>> fed = Simulation(data.rotated_digits(num_clients=8), models.mlp(64, 32, 10))
    >>> fed
    Simulation(8 clients, 162 training samples each, P = 2410, cpu, batched)
    >>> starts = fed.initial_model(0).repeat(8, 1)
    >>> trained = fed.ask(Train(range(8), starts, LocalTraining(steps=5), Key(0, "demo")))
    >>> trained.values.shape, fed.ask(Losses(range(8), trained.values)).values.shape
    (torch.Size([8, 2410]), torch.Size([8, 8]))
    """

    answers_rounds = False

    def __init__(
        self,
        data: ClientData,
        model: nn.Module | Callable[[], nn.Module],
        *,
        loss: LossName | Loss = "auto",
        augment: AugmentationName | Augmentation = "none",
        device: str | torch.device = "auto",
        precision: Precision = "auto",
        compile: bool = False,
        block_size: int | None = None,
        validation: float = 0.1,
        seed: int = 0,
        negative_losses: bool = False,
    ) -> None:
        if block_size is not None:
            require_positive(block_size=block_size)
        require_seed(seed)
        self.data = data
        self.negative_losses = negative_losses
        self.device = _device(device)
        self._model = model
        module = make_module(model, seed=0).to(self.device)
        architecture = Architecture.of(model, module)  # before a backend replaces layers
        self._loss = loss_named(loss, data.train.y)
        train_part, held_out = hold_out(data, validation, seed)
        parts: dict[Split, Samples | None] = {
            "train": train_part,
            "validation": held_out if validation > 0 else None,
            "test": data.test,
        }
        require(
            not compile or self.device.type == "cuda", f"compile is for a GPU, not {self.device}"
        )
        resolved = precision_named(precision, self.device)
        x, y = train_part.x, train_part.y
        self._network = select_network(module, self._loss, x, y, resolved, compile)
        self._layout = self._network.layout
        require(bool(self._layout.parameters), "the model has no parameters to train")
        self._samples = {
            split: part.to(self.device, self._layout.dtype)
            for split, part in parts.items()
            if part is not None
        }
        train = self._samples["train"]
        self.signature = Signature.of(train.x, train.y, loss_kind(self._loss))
        self.architecture = replace(architecture, signature=self.signature)
        self._augment = augmentation_named(augment, train.x)
        self._validation, self._seed = validation, seed
        self.traits = probe(module, self._loss, train.x, train.y)
        for part in self._samples.values():
            check_labels(module, self._loss, train.x, part.y, list(data.client_ids), part.sizes)
        self.num_classes = count_classes(module, self._loss, train.x, train.y)
        self._evaluation = Evaluation(
            self._network, self.traits.activations, self.traits.together, self.device
        )
        self._words = client_words(data.client_ids).to(self.device)
        self._trainer = Trainer(
            self._network, self.traits, train, self._augment, self._words, block_size
        )
        self.personal = PersonalStore()
        self.residuals = ResidualStore()
        self._answers: dict[type[Request[Any]], Callable[[Any], Tensor | ClientScores]] = {
            Train: self._train,
            Gradients: self._gradients,
            Losses: self._losses,
            ClassCounts: self._class_counts,
            BalancedLosses: self._balanced_losses,
            LossMoments: self._loss_moments,
            OutputMoments: self._output_moments,
            BootstrapLosses: self._bootstrap_losses,
            DataMoments: self._data_moments,
            Shares: self._shares,
            Scores: self._scores,
            Subspaces: self._subspaces,
            SharedSamples: self._shared_samples,
            Outputs: self._outputs,
            Collect: self._collect,
        }

    def __repr__(self) -> str:
        low, high = int(self.sizes.min()), int(self.sizes.max())
        sizes = f"{low}" if low == high else f"{low} to {high}"
        batched = "batched" if self.traits.together else "one by one"
        return (
            f"Simulation({len(self.client_ids)} clients, {sizes} training samples each, "
            f"P = {self._layout.length}, {self.device}, {batched})"
        )

    @property
    def client_ids(self) -> Sequence[str]:
        """Stable ids of the clients, in order."""
        return self.data.client_ids

    @property
    def sizes(self) -> Tensor:
        """``[m]`` number of training samples of each client, without validation samples."""
        return self._samples["train"].sizes

    @property
    def splits(self) -> Sequence[Split]:
        """What the clients hold."""
        return tuple(self._samples)

    @property
    def layers(self) -> Mapping[str, slice]:
        """Where each trained layer lies in a row."""
        return self._layout.layers

    @property
    def constant_loss(self) -> float | None:
        """The loss of predicting a constant: all classes alike, or the mean. None if unknown."""
        return constant_loss(self._loss, self._samples["train"].y, self.traits.num_outputs)

    @property
    def schema(self) -> Schema | None:
        """How the samples were made from a table, if they were."""
        return self.data.schema

    @property
    def truth(self) -> Partition | None:
        """The true partition, where it is known."""
        return self.data.truth

    @property
    def optima(self) -> Tensor | None:
        """The best model of each true cluster ``[k*, P]``, where it is known."""
        return self.data.optima

    @property
    def optimizer_states(self) -> OptimizerStates:
        """Optimizer states that clients keep between rounds (``LocalTraining.keep_state``)."""
        return self._trainer.optimizer_states

    @optimizer_states.setter
    def optimizer_states(self, states: OptimizerStates) -> None:
        self._trainer.optimizer_states = states

    @property
    def num_label_groups(self) -> int:
        """Groups that samples are divided into by their label; 1 if targets are not classes."""
        y = self._samples["train"].y
        return self.traits.num_outputs if y.ndim == 1 and not y.is_floating_point() else 1

    @property
    def num_columns(self) -> int:
        """Numbers of a sample that ``DataMoments`` sums up."""
        train = self._samples["train"]
        return columns_of(train.x[:1], train.y[:1]).shape[1]

    def sizes_of(self, split: Split) -> Tensor:
        """Return the number of samples of each client in a split: ``[m]``.

        Args:
            split: ``train``, ``validation`` or ``test``.

        Raises:
            InputError: If the clients do not hold it.
        """
        return self.samples_of(split).sizes

    def samples_of(self, split: Split) -> Samples:
        """Return what the clients hold in a split, in the type and on the device of the model.

        Args:
            split: ``train``, ``validation`` or ``test``.

        Raises:
            InputError: If the clients do not hold it.
        """
        if split not in self._samples:
            held = ", ".join(self._samples)
            raise InputError(f"the clients of this federation have no {split} data: only {held}")
        return self._samples[split]

    def fingerprint(self) -> str:
        """Return a digest of data, validation split, augmentation, loss and frozen layers."""
        return f"{self.data.fingerprint()} {self.settings_fingerprint()}"

    def settings_fingerprint(self) -> str:
        """Return the part of the fingerprint that is not about data."""
        names = [getattr(part, "__qualname__", repr(part)) for part in (self._loss, self._augment)]
        frozen = frozen_digest(self._network.module)
        parts = [str(self._validation), str(self._seed), *names]
        return " ".join([*parts, frozen] if frozen else parts)

    def initial_model(self, seed: int) -> Tensor:
        """Return w0: ``[P]``.

        Args:
            seed: Decides it, unless the weights are given.
        """
        return self._layout.row(make_module(self._model, seed)).to(self.device)

    def module(self, row: Tensor) -> nn.Module:
        """Return a row ``[P]`` as a module, with the frozen part of the model.

        Args:
            row: ``[P]``

        Raises:
            InputError: If the row does not have P coordinates.
        """
        length = self._layout.length
        require(
            tuple(row.shape) == (length,),
            f"a row of this model has the shape ({length},), not {tuple(row.shape)}",
        )
        return self._layout.load(row, make_module(self._model, seed=0).to(self.device)).eval()

    def ask(self, request: Request[Value]) -> Replies[Value]:
        """Answer a request for its clients.

        Args:
            request: Any request but ``Round``.

        Returns:
            The replies of its clients.

        Raises:
            InputError: If a client does not exist, the models do not have P coordinates, or the
                clients do not hold the split that is asked for.
        """
        answer = self._answers.get(type(request))
        require(answer is not None, f"a simulation does not answer {request.name!r}")
        count = len(self.client_ids)
        require(
            bool(((request.clients >= 0) & (request.clients < count)).all()),
            f"clients are numbered 0 to {count - 1}",
        )
        assert answer is not None
        while True:
            try:
                return Replies(request.clients, cast(Value, answer(request)))
            except torch.OutOfMemoryError:  # of a GPU: try again with smaller blocks
                self._trainer.shrink()
                if not self._evaluation.shrink():
                    raise
            torch.cuda.empty_cache()

    def _train(self, request: Train) -> Tensor:
        starts = self._check(request.starts, request.clients)
        require(
            request.steps > 0,
            f"round {request.key.round} is past the end: the training has {request.local.rounds} "
            "rounds, counted from 0",
        )
        if request.personal is not None:
            self._check_coordinates(request.personal, "personal coordinates")
            w0 = self.initial_model(request.key.seed)
            starts = self.personal.fill(request, starts, w0, self.data.client_ids)
        if isinstance(request.algorithm, Descent):
            rows = self._trainer.train(self._descent(request, request.algorithm, starts))
        else:
            train = self._samples["train"]
            rows = train_by_autograd(
                self._network, train, self._augment, self._words, request, starts
            )
        if request.sent is not None:
            self.personal.keep(request, rows, self.data.client_ids)
            starts, rows = request.sent.take(starts), request.sent.take(rows)
        if not request.compressed:
            return rows
        starts = starts.to(rows)
        return starts + self.residuals.compress(request, rows - starts, self.data.client_ids)

    def _descent(self, request: Train, algorithm: Descent, starts: Tensor) -> TrainingTask:
        clients, local = request.clients, request.local
        component, weigh = [0] * len(clients), None
        if algorithm.posterior is not None:
            component = algorithm.posterior.component.tolist()
            self._check_class_shares(algorithm.posterior.mixture)
            weigh = self._evaluation.posterior(
                algorithm.posterior, self._samples["train"], self._indices(clients)
            )
        require(
            not (algorithm.phases and local.keep_state),
            "keep_state and phases do not go together: the optimizer restarts in each phase",
        )
        for phase in algorithm.phases:
            self._check_coordinates(phase.coordinates, "the coordinates of a phase")
        anchors = starts if algorithm.anchors is None else algorithm.anchors
        corrections = algorithm.corrections
        return TrainingTask(
            entries=list(zip(clients.tolist(), component, strict=True)),
            starts=starts,
            anchors=self._check(anchors, clients),
            corrections=None if corrections is None else self._check(corrections, clients),
            spans=algorithm.spans(request.steps),
            local=local,
            key=request.key,
            weigh=weigh,
        )

    @torch.no_grad()
    def _gradients(self, request: Gradients) -> Tensor:
        require(
            not self.traits.updates_buffers,
            "gradients do not carry this model's buffers (BatchNorm): aggregate models instead",
        )
        require(
            not self.traits.random,
            "the model draws random numbers (dropout), so its gradients differ from call to call: "
            "aggregate models instead",
        )
        models = self._check(request.models, request.clients).to(self.device)
        clients, samples = self._indices(request.clients), self._samples["train"]
        self._network.train()
        rows = torch.zeros_like(models)
        if not len(clients):
            return rows
        mixes = self.traits.mixes_samples
        limit = self._trainer.block_limit(len(clients), int(self.sizes[clients].max()))
        for block in self.sizes[clients].argsort(stable=True).split(1 if mixes else limit):
            state = self._network.empty_state(len(block), self.device)
            for name, part in self._layout.unstack(models[block]).items():
                state[name].copy_(part)
            gradients = self._network.gradients(state)
            total = {name: torch.zeros_like(t) for name, t in state.items()}
            share = self.sizes[clients[block]].to(models.dtype).reciprocal().unsqueeze(-1)
            for x, y, inside in self._evaluation.padded(samples, clients[block], in_one_pass=mixes):
                with matmul_precision(self._network.precision):
                    gradients.compute(x, y, inside * share)
                for name in self._layout.parameters:
                    gradient = state[name].grad
                    if gradient is not None:
                        total[name] += gradient
            rows[block] = self._layout.stack(total)
        return rows

    @torch.no_grad()
    def _losses(self, request: Losses) -> Tensor:
        self._check_width(request.models)
        clients, samples = self._indices(request.clients), self.samples_of(request.split)
        owner, index = self._positions(clients, request.split, request.subsample)
        return self._evaluation.losses(request.models, samples, len(clients), owner, index)

    @torch.no_grad()
    def _class_counts(self, request: ClassCounts) -> Tensor:
        num_classes = self._require_classes(request)
        clients, samples = self._indices(request.clients), self._samples["train"]
        owner, index = all_samples(samples, clients)
        counts = count_by_class(samples, len(clients), owner, index, num_classes)
        if request.presence:
            return MIN_CLASS_SAMPLES * (counts >= MIN_CLASS_SAMPLES)
        return counts

    @torch.no_grad()
    def _balanced_losses(self, request: BalancedLosses) -> Tensor:
        num_classes = self._require_classes(request)
        self._check_width(request.models)
        shares, expected = request.class_shares, (len(request.models), num_classes)
        require(
            tuple(shares.shape) == expected,
            f"{expected[0]} models of {num_classes} classes need class shares of shape {expected}, "
            f"not {tuple(shares.shape)}",
        )
        clients, samples = self._indices(request.clients), self._samples["train"]
        owner, index = self._positions(clients, "train", request.subsample)
        return self._evaluation.balanced_losses(
            request.models, shares, samples, len(clients), owner, index
        )

    @torch.no_grad()
    def _loss_moments(self, request: LossMoments) -> Tensor:
        self._check_width(request.models)
        require(
            request.scales.shape == (len(request.models),) and bool((request.scales > 0).all()),
            f"scales must be {len(request.models)} positive numbers, one for each model",
        )
        count, scales = len(request.clients), request.scales.to(self.device)
        selections = self._selections(request.clients, request.splits)
        groups = self.num_label_groups
        return self._evaluation.loss_moments(request.models, scales, selections, count, groups)

    @torch.no_grad()
    def _output_moments(self, request: OutputMoments) -> Tensor:
        self._check_width(request.models)
        selections = self._selections(request.clients, request.splits)
        outputs = self.traits.num_outputs
        return self._evaluation.output_moments(
            request.models, selections, len(request.clients), outputs
        )

    @torch.no_grad()
    def _bootstrap_losses(self, request: BootstrapLosses) -> Tensor:
        self._check_width(request.models)
        require(request.replicates >= 1, f"replicates must be at least 1, not {request.replicates}")
        selections = self._selections(request.clients, request.splits)
        draws = bootstrap_streams(request.seed, self._words[self._indices(request.clients)])
        return self._evaluation.bootstrap_losses(
            request.models, selections, draws, request.replicates
        )

    @torch.no_grad()
    def _data_moments(self, request: DataMoments) -> Tensor:
        selections = self._selections(request.clients, request.splits)
        x = torch.cat([s.samples.x[s.index] for s in selections])
        y = torch.cat([s.samples.y[s.index] for s in selections])
        owner, num_groups = torch.cat([s.owner for s in selections]), self.num_label_groups
        groups = y % num_groups if num_groups > 1 else torch.zeros_like(owner)
        return column_moments(x, y, owner, groups, len(request.clients), num_groups).pack()

    def _selections(self, clients: Clients, splits: Sequence[Split]) -> list[Selection]:
        require(len(splits) > 0, "a request for moments or resamples needs at least one split")
        index = self._indices(clients)
        parts = [self.samples_of(split) for split in splits]
        return [Selection(samples, *all_samples(samples, index)) for samples in parts]

    @torch.no_grad()
    def _shares(self, request: Shares) -> Tensor:
        self._check_width(request.models)
        clients, samples = self._indices(request.clients), self._samples["train"]
        groups = self.num_label_groups if request.by_class else 1
        shares = self._evaluation.shares(request.models, samples, clients, groups)
        return shares if request.by_class else shares.squeeze(2)

    @torch.no_grad()
    def _scores(self, request: Scores) -> ClientScores:
        samples, clients = self.samples_of(request.split), self._indices(request.clients)
        if isinstance(request.models, Mixture):
            self._check_width(request.models)
            return self._evaluation.mixture_scores(request.models, samples, clients)
        models = self._check(request.models, request.clients)
        if request.personal is not None:
            values = self.personal.get(request.personal, request.clients, self.data.client_ids)
            models = request.personal.coordinates.put(models, values.to(models))
        return self._evaluation.scores(models, samples, clients)

    @torch.no_grad()
    def _subspaces(self, request: Subspaces) -> Tensor:
        samples, clients = self._samples["train"], self._indices(request.clients)
        rank = request.rank
        require(
            samples.x.is_floating_point(),
            "subspaces need floating-point inputs, but these are integers, like text",
        )
        features = samples.x[0].numel()
        if not len(clients):
            width = request.num_vectors
            return torch.empty(0, features, width, dtype=self._layout.dtype, device=self.device)
        if request.num_classes:
            return self._class_subspaces(request, clients)
        fewest = int(samples.sizes[clients].argmin())
        count, name = int(samples.sizes[clients][fewest]), self.client_ids[int(clients[fewest])]
        require(
            1 <= rank <= min(features, count),
            f"rank must be from 1 to {min(features, count)}, not {rank}: inputs have "
            f"{features} features, and client {name!r} has {count} training samples",
        )
        bases = [_leading(samples.of(client)[0].flatten(1), rank) for client in clients.tolist()]
        return torch.stack(bases).to(self._layout.dtype)

    def _class_subspaces(self, request: Subspaces, clients: Tensor) -> Tensor:
        """Return the leading directions of each class: ``[c, features, num_classes * rank]``."""
        samples, rank = self._samples["train"], request.rank
        features = samples.x[0].numel()
        require(1 <= rank <= features, f"rank must be from 1 to {features}, not {rank}")
        require(not samples.y.is_floating_point(), "subspaces of classes need classes as targets")
        shape = (len(clients), features, request.num_vectors)
        bases = torch.zeros(shape, dtype=torch.float64, device=self.device)
        for place, client in enumerate(clients.tolist()):
            x, y = samples.of(client)
            for label in y.unique().tolist():
                inputs = x[y == label].flatten(1)
                leading = _leading(inputs, min(rank, len(inputs)))
                start = label * rank
                bases[place, :, start : start + leading.shape[1]] = leading
        return bases.to(self._layout.dtype)

    def _shared_samples(self, request: SharedSamples) -> Tensor:
        require_positive(size=request.size)
        samples, clients = self._samples["train"], self._indices(request.clients)
        draws = streams(Key(request.seed, "shared samples"), self._words[clients])
        owner, index = subsampled(samples, clients, draws, request.size)
        rows = flatten_samples(samples.x[index], samples.y[index] if request.targets else None)
        shared = rows.new_full((len(clients), request.size, rows.shape[1]), torch.inf)
        for entry in range(len(clients)):
            of_client = rows[owner == entry]
            shared[entry, : len(of_client)] = of_client
        return shared

    @torch.no_grad()
    def _outputs(self, request: Outputs) -> Tensor:
        models, like = self._check(request.models, request.clients), self._samples["train"].x
        require(
            request.inputs.ndim == 2 and request.inputs.shape[1] == like[:1].numel(),
            f"inputs must be rows of {like[:1].numel()} numbers, not {tuple(request.inputs.shape)}",
        )
        inputs = inputs_of(request.inputs.to(self.device), like)
        return self._evaluation.outputs(models, inputs, self.traits.num_outputs)

    def _collect(self, request: Collect) -> Tensor:
        return self.personal.get(request.personal, request.clients, self.data.client_ids)

    def _positions(
        self, clients: Tensor, split: Split, subsample: Subsample | None
    ) -> tuple[Tensor, Tensor]:
        """Return owner and position of the clients' samples, or of a subsample of them."""
        samples = self.samples_of(split)
        if subsample is None:
            return all_samples(samples, clients)
        draws = streams(Key(subsample.seed, f"sample/{split}"), self._words[clients])
        return subsampled(samples, clients, draws, subsample.size)

    def _require_classes(self, request: Request[Tensor]) -> int:
        if self.num_classes is None:
            raise InputError(
                f"{request.name!r} needs classes, one label for each sample and the loss "
                "cross_entropy, but these clients do not have them: use another distance, such as "
                "cross_loss"
            )
        return self.num_classes

    def _check(self, rows: Tensor, clients: Clients) -> Tensor:
        expected = (len(clients), self._layout.length)
        require(
            tuple(rows.shape) == expected,
            f"{len(clients)} clients need rows of shape {expected}, not {tuple(rows.shape)}",
        )
        self._check_dtype(rows)
        return rows

    def _check_width(self, models: Tensor | Mixture) -> None:
        rows = models.models if isinstance(models, Mixture) else models
        length = self._layout.length
        require(
            rows.ndim == 2 and rows.shape[1] == length,
            f"models must have the shape (k, {length}), not {tuple(rows.shape)}",
        )
        self._check_dtype(rows)
        if isinstance(models, Mixture):
            self._check_class_shares(models)

    def _check_class_shares(self, mixture: Mixture) -> None:
        shares, expected = mixture.class_shares, (len(mixture.models), self.num_label_groups)
        require(
            shares is None or (tuple(shares.shape) == expected and bool((shares > 0).all())),
            f"the class shares of a mixture must be positive, of shape {expected}",
        )

    def _check_dtype(self, rows: Tensor) -> None:
        dtype = self._layout.dtype
        require(rows.dtype == dtype, f"models must be of type {dtype}, not {rows.dtype}")

    def _check_coordinates(self, coordinates: Coordinates, name: str) -> None:
        length = self._layout.length
        last = max((stop for _, stop in coordinates.ranges), default=0)
        require(last <= length, f"{name} end at {last}, but rows have {length} coordinates")

    def _indices(self, clients: Clients) -> Tensor:
        return torch.as_tensor(clients).to(self.device)


def _leading(rows: Tensor, rank: int) -> Tensor:
    """Return the leading right singular vectors of rows ``[n, f]``, by the smaller Gram matrix."""
    rows = rows.double()
    wide = rows.shape[1] > len(rows)
    gram = rows @ rows.T if wide else rows.T @ rows
    vectors: Tensor = torch.linalg.eigh(gram).eigenvectors[:, -rank:].flip(1)
    return torch.as_tensor(torch.linalg.qr(rows.T @ vectors).Q) if wide else vectors


def _device(name: str | torch.device) -> torch.device:
    require(
        isinstance(name, str | torch.device),
        f"device must be 'auto' or a device of torch such as 'cuda:1', not {name!r}",
    )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {str(name)!r} is not available: {error}") from error
    return device
