"""Local algorithms of a user's own: any Python code, client by client, through autograd."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from srfca import progress
from srfca.data.client_data import Samples
from srfca.engine.augment import Augmentation
from srfca.engine.backends.autograd import Network, counters_restored, matmul_precision
from srfca.engine.sampling import BatchPlan, Sampler
from srfca.errors import require
from srfca.federation.local_training import LocalTraining
from srfca.federation.requests import Train
from srfca.random import streams


class PerformanceWarning(UserWarning):
    """Something works, but not at the speed of the engine."""


class AutogradClient:
    """One client, as a local algorithm sees it (``LocalClient``).

    Args:
        network: What is trained.
        samples: Training data of all clients.
        augment: Augmentation of training images.
        plan: The batches of this client.
        local: How it trains.
        steps: The steps of this round.
        start: ``[P]`` where it starts; its buffers are the client's from now on.
    """

    def __init__(
        self,
        network: Network,
        samples: Samples,
        augment: Augmentation,
        plan: BatchPlan,
        local: LocalTraining,
        steps: range,
        start: Tensor,
    ) -> None:
        self._network, self._samples, self._augment = network, samples, augment
        self._plan = plan
        self.local, self.steps = local, steps
        state = network.layout.unstack(start.unsqueeze(0))
        parameters = network.layout.parameters
        self._buffers = {name: t.clone() for name, t in state.items() if name not in parameters}

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of a step of this round."""
        position = step - self.steps.start
        index = self._plan.index[position, 0]
        x = self._augment(self._samples.x[index].unsqueeze(0), self._plan.augment_streams[position])
        return x.squeeze(0), self._samples.y[index]

    def loss(self, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a model ``[P]``, differentiable in the row."""
        state = self._network.layout.unstack(row.unsqueeze(0)) | self._buffers
        smoothing = self.local.label_smoothing
        return self._network.losses(state, x.unsqueeze(0), y.unsqueeze(0), smoothing).mean()

    def outputs(self, row: Tensor, x: Tensor) -> Tensor:
        """Return the outputs of a model ``[P]``, differentiable in the row: ``[b, ...]``."""
        state = self._network.layout.unstack(row.unsqueeze(0)) | self._buffers
        return self._network.outputs(state, x.unsqueeze(0)).squeeze(0)

    def gradient(self, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient ``[P]`` of the mean loss; zero for buffers."""
        with torch.enable_grad():
            leaf = row.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.loss(leaf, x, y), leaf)
        return gradient

    def with_buffers(self, row: Tensor) -> Tensor:
        """Return a row ``[P]`` with the client's buffers in it."""
        layout = self._network.layout
        return layout.stack(layout.unstack(row.unsqueeze(0)) | self._buffers)[0]


def train_by_autograd(
    network: Network,
    samples: Samples,
    augment: Augmentation,
    words: Tensor,
    request: Train,
    starts: Tensor,
) -> Tensor:
    """Train the clients of a request one after another with the request's algorithm.

    Args:
        network: What is trained.
        samples: Training data of all clients.
        augment: Augmentation of training images.
        words: ``[m]`` hashes of the client ids, which every draw starts from.
        request: Clients, algorithm and local training.
        starts: ``[c, P]``

    Returns:
        ``[c, P]``
    """
    algorithm, local, key = request.algorithm, request.local, request.key
    warnings.warn(
        f"the local algorithm {algorithm.key!r} trains client by client through autograd; only "
        "'descent' runs in the batched engine",
        PerformanceWarning,
        stacklevel=2,
    )
    sampler, span = Sampler(samples, words, network.layout.dtype), local.span(key.round)
    tensors, rows = algorithm.tensors(), torch.empty_like(starts)
    seeds = streams(key, words[torch.as_tensor(request.clients, device=words.device)]).tolist()
    device = samples.sizes.device
    network.train()
    with (
        matmul_precision(network.precision),
        torch.random.fork_rng([device] if device.type == "cuda" else []),
    ):
        for position, client in enumerate(request.clients.tolist()):
            size = int(samples.sizes[client])
            batch_size = size if local.batch_size is None else min(size, local.batch_size)
            at, sizes = (torch.tensor([value], device=device) for value in (client, batch_size))
            plan = sampler.plan(at, sizes, local, key)
            start = starts[position]
            view = AutogradClient(network, samples, augment, plan, local, span, start)
            torch.manual_seed(seeds[position])
            fields = {name: tensor[position] for name, tensor in tensors.items()}
            with counters_restored(network.module):
                row = algorithm.train(view, start.clone(), **fields).detach()
            require(
                row.shape == start.shape,
                f"the local algorithm {algorithm.key!r} must return a row of shape "
                f"{tuple(start.shape)}, not {tuple(row.shape)}",
            )
            rows[position] = view.with_buffers(row)
            progress.report(len(span))
    return rows
