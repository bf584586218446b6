"""Local training of a block of clients, all at once.

Each parameter is one stacked tensor ``[c, *shape]``. The clients' losses are independent, so the
gradient of their sum holds the gradient of each, and an optimiser that works element by element
treats the stack as it would treat each client alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from srfca.federation.base import Tick, Work
from srfca.federation.loss import Loss
from srfca.models.rows import Layout

State = dict[str, Tensor]


@dataclass(frozen=True)
class Kept:
    """A client's optimiser state between rounds: steps done, and its moments as rows."""

    steps: int
    moments: dict[str, Tensor]


def per_sample(module: nn.Module, loss: Loss, state: State, x: Tensor, y: Tensor) -> Tensor:
    """Losses ``[c, b]`` of c models on their own samples: x is ``[c, b, ...]``."""

    def one(state: State, x: Tensor, y: Tensor) -> Tensor:
        return loss(functional_call(module, state, (x,)), y)

    return over_models(one, state, x, y)


def over_models(one: Callable[..., Tensor], state: State, *samples: Tensor) -> Tensor:
    """Apply ``one`` to each model and its samples; a single model goes without vmap."""
    if len(samples[0]) == 1:
        single = {name: t[0] for name, t in state.items()}
        return one(single, *(s[0] for s in samples)).unsqueeze(0)
    return torch.as_tensor(vmap(one)(state, *samples))


def gradient(
    module: nn.Module,
    layout: Layout,
    loss: Loss,
    state: State,
    batches: Iterable[tuple[Tensor, Tensor, Tensor]],
) -> None:
    """Leave in ``.grad`` each client's gradient of its mean loss over all of the batches.

    A batch is x ``[c, b, ...]``, y and the share ``[c, b]`` of each sample in its client's mean.
    """
    for name in layout.parameters:
        state[name].grad = None
    for x, y, share in batches:
        (per_sample(module, loss, state, x, y) * share).sum().backward()


@contextmanager
def counters_restored(module: nn.Module) -> Iterator[None]:
    """Undo what training writes to integer buffers (BatchNorm counts its batches): not in a row."""
    counters = [b for b in module.buffers() if not b.is_floating_point()]
    before = [b.clone() for b in counters]
    try:
        yield
    finally:
        for counter, value in zip(counters, before, strict=True):
            counter.copy_(value)


def train(
    module: nn.Module,
    layout: Layout,
    loss: Loss,
    starts: Tensor,
    work: Work,
    span: range,
    batch: Callable[[int], tuple[Tensor, Tensor, Tensor]],
    kept: Kept | None,
    tick: Tick,
    anchors: Tensor,
) -> tuple[Tensor, Kept | None]:
    """Train c clients from their rows ``[c, P]``; ``batch(s)`` gives what they take in step s."""
    module.train()
    state = layout.unstack(starts.clone())
    state = {name: t.contiguous() for name, t in state.items()}
    parameters = [state[name].requires_grad_() for name in layout.parameters]
    if work.prox:
        pulled_to = layout.unstack(anchors)
    optimizer = _optimizer(parameters, work)
    if kept is not None:
        _restore(optimizer, parameters, kept)
    with counters_restored(module):
        for step in span:
            gradient(module, layout, loss, state, [batch(step - span.start)])
            if work.prox:
                _add_proximal(parameters, [pulled_to[n] for n in layout.parameters], work.prox)
            if work.clip is not None:
                _clip(parameters, work.clip)
            optimizer.param_groups[0]["lr"] = work.rate(step)
            optimizer.step()
            tick(len(starts))
    return layout.stack(state), _keep(optimizer, parameters) if work.keep_state else None


def _optimizer(parameters: list[Tensor], work: Work) -> torch.optim.Optimizer:
    if work.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=work.lr, weight_decay=work.weight_decay, fused=True)
    return torch.optim.SGD(
        parameters, lr=work.lr, momentum=work.momentum, weight_decay=work.weight_decay, fused=True
    )


def _add_proximal(parameters: list[Tensor], anchors: list[Tensor], prox: float) -> None:
    """Add the gradient of ``prox/2 |w - anchor|^2``."""
    for parameter, anchor in zip(parameters, anchors, strict=True):
        pull = (parameter.detach() - anchor) * prox
        parameter.grad = pull if parameter.grad is None else parameter.grad + pull


def _clip(parameters: list[Tensor], largest: float) -> None:
    """Scale each client's gradient to a norm of at most ``largest``."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    squares = torch.stack([g.reshape(len(g), -1).square().sum(1) for g in gradients])
    scale = (largest / (squares.sum(0).sqrt() + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(scale.view(-1, *[1] * (g.ndim - 1)))


def _keep(optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> Kept:
    """The optimiser's state as rows ``[c, trained]``."""
    entries = [optimizer.state[p] for p in parameters]
    steps = max((int(entry["step"]) for entry in entries if "step" in entry), default=1)
    names = {name: None for e in entries for name, t in e.items() if t is not None}
    moments = {}
    for name in names:
        if name != "step":
            pairs = zip(entries, parameters, strict=True)
            rows = [e[name] if e.get(name) is not None else torch.zeros_like(p) for e, p in pairs]
            moments[name] = torch.cat([row.reshape(len(row), -1) for row in rows], dim=1)
    return Kept(steps, moments)


def _restore(optimizer: torch.optim.Optimizer, parameters: list[Tensor], kept: Kept) -> None:
    at = 0
    for parameter in parameters:
        width = parameter[0].numel()
        state = optimizer.state[parameter]
        for name, rows in kept.moments.items():
            state[name] = rows[:, at : at + width].reshape(parameter.shape).clone()
        if "exp_avg" in state:
            state["step"] = torch.tensor(
                float(kept.steps), device=parameter.device, dtype=torch.float32
            )
        at += width
