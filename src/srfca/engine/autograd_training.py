"""Local algorithms of a user's own: any Python code, client by client, through autograd."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from srfca import progress
from srfca.data.client_data import Samples
from srfca.engine.backends.autograd import Network, counters_restored
from srfca.engine.sampling import BatchPlan, Sampler
from srfca.errors import require
from srfca.federation.local_training import LocalTraining
from srfca.federation.requests import Train
from srfca.models.rows import set_training


class PerformanceWarning(UserWarning):
    """Something works, but not at the speed of the engine."""


class AutogradClient:
    """One client, as a local algorithm sees it (``LocalClient``)."""

    def __init__(
        self,
        network: Network,
        samples: Samples,
        plan: BatchPlan,
        local: LocalTraining,
        steps: range,
    ) -> None:
        self._network, self._samples, self._plan = network, samples, plan
        self.local, self.steps = local, steps

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of a step of this round."""
        index = self._plan.index[step - self.steps.start, 0]
        return self._samples.x[index], self._samples.y[index]

    def loss(self, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a model ``[P]``, differentiable in the row."""
        state = self._network.layout.unstack(row.unsqueeze(0))
        return self._network.losses(state, x.unsqueeze(0), y.unsqueeze(0)).mean()

    def gradient(self, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient ``[P]`` of the mean loss; zero for buffers."""
        with torch.enable_grad():
            leaf = row.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.loss(leaf, x, y), leaf)
        return gradient


def train_by_autograd(
    network: Network, samples: Samples, words: Tensor, request: Train, starts: Tensor
) -> Tensor:
    """Train the clients of a request one after another with the request's algorithm: ``[c, P]``."""
    algorithm, local, key = request.algorithm, request.local, request.key
    warnings.warn(
        f"the local algorithm {algorithm.key!r} trains client by client through autograd; only "
        "'descent' runs in the batched engine",
        PerformanceWarning,
        stacklevel=2,
    )
    sampler, span = Sampler(samples, words, network.layout.dtype), local.span(key.round)
    tensors, rows = algorithm.tensors(), []
    set_training(network.module)
    with counters_restored(network.module):
        for position, client in enumerate(request.clients.tolist()):
            size = int(samples.sizes[client])
            batch_size = size if local.batch_size is None else min(size, local.batch_size)
            device = samples.sizes.device
            at, sizes = (torch.tensor([value], device=device) for value in (client, batch_size))
            plan = sampler.plan(at, sizes, local, key)
            view = AutogradClient(network, samples, plan, local, span)
            own = {name: tensor[position] for name, tensor in tensors.items()}
            row = algorithm.train(view, starts[position], **own).detach()
            require(
                row.shape == starts[position].shape,
                f"the local algorithm {algorithm.key!r} must return a row of shape "
                f"{tuple(starts[position].shape)}, not {tuple(row.shape)}",
            )
            rows.append(row)
            progress.report(len(span))
    return torch.stack(rows)
