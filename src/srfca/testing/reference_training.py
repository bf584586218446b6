"""How one client of the reference trains."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call

from srfca.engine.loss import smoothed
from srfca.errors import require
from srfca.federation.algorithms import Descent, LocalAlgorithm
from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import LocalTraining
from srfca.federation.requests import Train
from srfca.models.rows import set_training
from srfca.random import Key, batches, bits, client_words, integers, streams

if TYPE_CHECKING:
    from srfca.testing.reference import ReferenceFederation


def train_entry(
    federation: ReferenceFederation, request: Train, entry: int, client: int, start: Tensor
) -> Tensor:
    """Train one entry of a request from a start ``[P]``: ``[P]``."""
    batches_of_steps = _batches(federation, client, request.local, request.key)
    seed = int(streams(request.key, client_words([federation.client_ids[client]]))[0])
    if isinstance(request.algorithm, Descent):
        return _descend(federation, request, entry, client, start, batches_of_steps, seed)
    fields = {name: rows[entry] for name, rows in request.algorithm.tensors().items()}
    return _run(federation, request.algorithm, fields, request, start, batches_of_steps, seed)


def _batches(
    federation: ReferenceFederation, client: int, local: LocalTraining, key: Key
) -> list[_Batch]:
    """Return the batches of all steps of a round."""
    x, y = federation.samples["train"].of(client)
    words = client_words([federation.client_ids[client]])
    sample = torch.arange(len(x))
    if local.resample:
        stream = streams(Key(key.seed, f"{key.purpose}/resample"), words)
        sample = integers(stream, len(x), torch.tensor([len(x)]))[0]
    span = local.span(key.round)
    size = len(x) if local.batch_size is None else min(local.batch_size, len(x))
    index = batches(streams(key, words), torch.tensor([len(x)]), size, len(span))[0]
    changes = streams(Key(key.seed, f"{key.purpose}/augment", key.round), words)
    result = []
    for positions, change in zip(index, bits(changes, len(span))[0], strict=True):
        chosen = sample[positions]
        images = federation.augment(x[chosen].unsqueeze(0), change.unsqueeze(0))[0]
        result.append(_Batch(chosen, images, y[chosen]))
    return result


def _descend(
    federation: ReferenceFederation,
    request: Train,
    entry: int,
    client: int,
    start: Tensor,
    batches_of_steps: list[_Batch],
    seed: int,
) -> Tensor:
    """Train with ``torch.optim``."""
    local, algorithm = request.local, request.algorithm
    assert isinstance(algorithm, Descent)
    component, weights = 0, torch.ones(int(federation.sizes[client]), dtype=federation.layout.dtype)
    if algorithm.posterior is not None:
        component = int(algorithm.posterior.component[entry])
        mixture = algorithm.posterior.mixture
        require(
            tuple(mixture.weights.shape) == (len(request.clients), len(mixture.models))
            and 0 <= component < len(mixture.models),
            f"component {component} of {len(mixture.models)} models",
        )
        weights = federation.posterior(mixture, entry, client)[component]
    anchor = start if algorithm.anchors is None else algorithm.anchors[entry]
    module = set_training(federation.module(start))
    anchors = federation.parts(anchor)
    corrections = {}
    if algorithm.corrections is not None:
        federation.check_rows(algorithm.corrections, len(request.clients))
        corrections = federation.parts(algorithm.corrections[entry])
    trained = dict(module.named_parameters())
    states = federation.optimizers.setdefault((request.key.seed, request.key.purpose), {})
    span = local.span(request.key.round)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for coordinates, steps in algorithm.spans(request.steps):
            names = _parameters_in(federation, coordinates)
            optimizer = _optimizer([trained[name] for name in names], local)
            if local.keep_state and (client, component) in states:
                optimizer.load_state_dict(states[client, component])
            for step in steps:
                batch = batches_of_steps[step]
                optimizer.param_groups[0]["lr"] = local.rate(span[step])
                for parameter in module.parameters():
                    parameter.grad = None
                loss_of_samples = smoothed(federation.loss, local.label_smoothing)
                losses = loss_of_samples(module(batch.x), batch.y) * weights[batch.samples]
                loss = losses.mean()
                for name in names:
                    if local.mu:
                        distance = (trained[name] - anchors[name]).square().sum()
                        loss = loss + local.mu / 2 * distance
                    if corrections:
                        loss = loss + (trained[name] * corrections[name]).sum()
                loss.backward()
                if local.clip is not None:
                    nn.utils.clip_grad_norm_([trained[name] for name in names], local.clip)
                optimizer.step()
            if local.keep_state:
                states[client, component] = deepcopy(optimizer.state_dict())
    return federation.layout.row(module)


def _run(
    federation: ReferenceFederation,
    algorithm: LocalAlgorithm,
    fields: dict[str, Tensor],
    request: Train,
    start: Tensor,
    batches_of_steps: list[_Batch],
    seed: int,
) -> Tensor:
    """Train with a local algorithm of a user's own."""
    span = request.local.span(request.key.round)
    client = _Client(
        federation, set_training(federation.module(start)), batches_of_steps, request, span
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        row = algorithm.train(client, start, **fields).detach()
    for name, part in federation.parts(row).items():
        if name in federation.layout.parameters:
            client.module.get_parameter(name).data.copy_(part)
    return federation.layout.row(client.module)


def _parameters_in(federation: ReferenceFederation, coordinates: Coordinates | None) -> list[str]:
    """Return the parameters that some coordinates are; None is all of them."""
    if coordinates is None:
        return list(federation.layout.parameters)
    mask = coordinates.mask(federation.layout.length)
    parts = federation.parts(mask)
    return [name for name in federation.layout.parameters if bool(parts[name].all())]


@dataclass(frozen=True)
class _Batch:
    """The batch of a step: positions among the client's samples, inputs and targets."""

    samples: Tensor
    x: Tensor
    y: Tensor


class _Client:
    """One client, as a local algorithm of a user's own sees it."""

    def __init__(
        self,
        federation: ReferenceFederation,
        module: nn.Module,
        batches_of_steps: list[_Batch],
        request: Train,
        steps: range,
    ) -> None:
        self.module, self.local, self.steps = module, request.local, steps
        self._federation, self._batches = federation, batches_of_steps

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        batch = self._batches[step - self.steps.start]
        return batch.x, batch.y

    def loss(self, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        loss = smoothed(self._federation.loss, self.local.label_smoothing)
        return loss(self.outputs(row, x), y).mean()

    def outputs(self, row: Tensor, x: Tensor) -> Tensor:
        names, parts = self._federation.layout.parameters, self._federation.parts(row)
        state = {name: parts[name] for name in names}
        return torch.as_tensor(functional_call(self.module, state, (x,)))

    def gradient(self, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        leaf = row.detach().clone().requires_grad_()
        self.loss(leaf, x, y).backward()
        assert leaf.grad is not None
        return leaf.grad


def _optimizer(parameters: list[nn.Parameter], local: LocalTraining) -> torch.optim.Optimizer:
    if local.optimizer == "adam":
        return torch.optim.Adam(parameters, local.lr, weight_decay=local.weight_decay)
    return torch.optim.SGD(parameters, local.lr, local.momentum, weight_decay=local.weight_decay)
