"""What a module can be asked to do, found by trying it on a few samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from srfca.errors import InputError, require
from srfca.federation.loss import Loss, cross_entropy
from srfca.federation.network import counters_restored
from srfca.federation.recurrent import Stepped
from srfca.models.rows import Layout

_TRIED = 4
_KEPT = 6
"""What a recurrent layer keeps for each number it puts out: an LSTM its gates, cells and states."""


@dataclass(frozen=True)
class Traits:
    """How the clients of a module may be trained together."""

    batchable: bool
    """Several clients in one pass through ``torch.vmap``; if not, one client at a time."""
    why_not: str
    """Why it is not batchable: an operation without a batching rule, or randomness (dropout)."""
    mixes_samples: bool
    """In training a sample's output depends on the others (BatchNorm): a batch is never padded."""
    updates_buffers: bool
    """Training writes to buffers, which gradients do not carry."""
    random: bool
    """In training the module draws random numbers (dropout)."""
    convolves: bool
    """It has layers that are no faster for several clients at once: convolutional, recurrent."""
    activations: int
    """Numbers that the layers put out for one sample: what a pass needs in memory."""

    @property
    def together(self) -> bool:
        """Whether several clients go through one pass."""
        return self.batchable and not self.convolves


def traits_of(module: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Traits:
    """Try a module on the first few samples of ``x`` and ``y``."""
    tried = torch.arange(_TRIED, device=x.device) % len(x)
    x, y = x[tried], y[tried]
    layout = Layout.of(module)
    row = layout.row(module).unsqueeze(0)
    state = {name: t[0].clone() for name, t in layout.unstack(row).items()}
    module.train()
    before = layout.stack({name: t.unsqueeze(0) for name, t in state.items()})
    with torch.no_grad(), torch.random.fork_rng(), counters_restored(module):
        _try_alone(module.eval(), state, x)
        module.train()
        drawn = _generators(x.device)
        outputs = _try(module, state, x)
        draws = not all(map(torch.equal, drawn, _generators(x.device)))
        after = layout.stack({name: t.unsqueeze(0) for name, t in state.items()})
        again = functional_call(module, state, (x,))
        fewer = functional_call(module, state, (x[:-1],))
        per_sample = _try_loss(loss, outputs, y)
        batchable, why_not = _batches(module, layout, loss, x, y, per_sample)
    return Traits(
        batchable=batchable,
        why_not=why_not,
        mixes_samples=_has_batch_norm(module) or not torch.allclose(outputs[:-1], fewer, rtol=1e-3),
        updates_buffers=not torch.equal(before, after),
        random=draws or not torch.allclose(outputs, again, rtol=1e-3),
        convolves=any(_goes_alone(part) for part in module.modules()),
        activations=_activations(module, state, x[:2]),
    )


def check_labels(
    module: nn.Module, loss: Loss, x: Tensor, labels: Tensor, owners: list[str], sizes: Tensor
) -> None:
    """Refuse class labels that the module has no output for, naming the client."""
    if loss is not cross_entropy or labels.is_floating_point():
        return
    module.eval()
    with torch.no_grad():
        classes = module(x[:2]).shape[1]
    wrong = (
        ((labels < 0) | (labels >= classes)).flatten(1).any(1)
        if labels.ndim > 1
        else ((labels < 0) | (labels >= classes))
    )
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        owner = owners[int((sizes.cumsum(0) <= first).sum())]
        values = labels[first].flatten()
        value = int(values[(values < 0) | (values >= classes)][0])
        raise InputError(
            f"client {owner!r} has the label {value}, but the model's outputs are for "
            f"classes 0 to {classes - 1}"
        )


def _try(module: nn.Module, state: dict[str, Tensor], x: Tensor) -> Tensor:
    try:
        outputs = functional_call(module, state, (x,))
    except Exception as error:  # whatever the user's own code does
        shape, what = tuple(x.shape[1:]), _what(error)
        raise InputError(f"the model does not take samples of shape {shape}: {what}") from error
    require(isinstance(outputs, Tensor), f"the model must return a tensor, not {type(outputs)}")
    return torch.as_tensor(outputs)


def _try_alone(module: nn.Module, state: dict[str, Tensor], x: Tensor) -> None:
    """Refuse a module whose answer for a sample depends on the others when it is evaluated."""
    together, fewer = (_try(module, state, some) for some in (x, x[: len(x) // 2]))
    apart = float((together[: len(fewer)] - fewer).norm())
    require(
        not apart > 0.01 * float(fewer.norm()),
        "in evaluation the model's output for a sample depends on the other samples of the batch, "
        "so that its loss is not defined: a BatchNorm must keep running statistics",
    )


def _generators(device: torch.device) -> list[Tensor]:
    """Where random numbers are drawn from."""
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *cuda]


def _what(error: Exception) -> str:
    return str(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"


def _try_loss(loss: Loss, outputs: Tensor, y: Tensor) -> Tensor:
    try:
        losses = loss(outputs, y.clamp(0, outputs.shape[1] - 1) if loss is cross_entropy else y)
    except Exception as error:  # whatever the user's own code does
        raise InputError(
            f"the loss does not fit the model's outputs of shape {tuple(outputs.shape[1:])} and "
            f"targets of shape {tuple(y.shape[1:])}: {_what(error)}"
        ) from error
    require(
        losses.shape == y.shape[:1],
        f"the loss must return one value for each of {len(y)} samples, "
        f"not a tensor of shape {tuple(losses.shape)}",
    )
    return losses


def _batches(
    module: nn.Module, layout: Layout, loss: Loss, x: Tensor, y: Tensor, expected: Tensor
) -> tuple[bool, str]:
    """Whether two copies in one vmap give what one gives alone, and why not."""
    pair = layout.unstack(layout.row(module).repeat(2, 1))
    y = y.clamp(0) if loss is cross_entropy else y

    def one(state: dict[str, Tensor], x: Tensor) -> Tensor:
        return loss(functional_call(module, state, (x,)), y)

    try:
        both = vmap(one)(pair, torch.stack([x, x]))
    except RuntimeError as error:
        return False, str(error).split(". ")[0]
    if not torch.allclose(both, expected.expand(2, -1), rtol=1e-3, atol=1e-4):
        return False, "vmap gives another result than one client alone"
    return True, ""


def _goes_alone(part: nn.Module) -> bool:
    recurrent = isinstance(part, nn.RNNBase) and not isinstance(part, Stepped)
    return recurrent or isinstance(part, nn.modules.conv._ConvNd)


def _has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules())


def _activations(module: nn.Module, state: dict[str, Tensor], x: Tensor) -> int:
    counted = [x.numel()]

    def count(part: nn.Module, inputs: object, output: object) -> None:
        if isinstance(part, nn.RNNBase) and isinstance(output, tuple):
            counted.append(_KEPT * part.num_layers * output[0].numel())
        elif isinstance(output, Tensor):
            counted.append(output.numel())

    leaves = [part for part in module.modules() if not list(part.children())]
    hooks = [part.register_forward_hook(count) for part in leaves]
    try:
        with torch.no_grad():
            functional_call(module.eval(), state, (x,))
    finally:
        for hook in hooks:
            hook.remove()
    return sum(counted) // len(x)
