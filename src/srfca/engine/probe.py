"""Probe a module with a few samples to find out how its clients can be trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from srfca.engine.backends.autograd import counters_restored
from srfca.engine.backends.lstm import SteppedLSTM
from srfca.engine.loss import Loss, cross_entropy, loss_kind
from srfca.errors import InputError, require
from srfca.models.rows import Layout, set_training

_NUM_SAMPLES = 4
_LSTM_ACTIVATIONS = 6
"""Numbers that a recurrent layer keeps per output: gates, cells and states of an LSTM."""


@dataclass(frozen=True)
class ModuleTraits:
    """How clients with this module can be trained."""

    batchable: bool
    """Whether several clients can go through ``torch.vmap`` in one pass."""
    not_batchable_reason: str
    """Why not: an operation without a batching rule, or random numbers (dropout)."""
    mixes_samples: bool
    """Whether outputs in training depend on the other samples (BatchNorm): no padding then."""
    updates_buffers: bool
    """Whether training writes to buffers, which gradients do not carry."""
    random: bool
    """Whether the module draws random numbers in training (dropout)."""
    convolves: bool
    """Whether it has layers that are not faster in a batch of clients: convolutional, recurrent."""
    activations: int
    """Numbers that the layers output for one sample: the memory of a pass."""
    num_outputs: int
    """Numbers that the module outputs for one sample."""

    @property
    def together(self) -> bool:
        """Whether several clients train in one pass."""
        return self.batchable and not self.convolves


def probe(module: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> ModuleTraits:
    """Run a module on the first few samples of ``x`` and ``y``, and return its traits.

    Raises:
        InputError: If the module does not take the samples, or the loss does not fit.
    """
    index = torch.arange(_NUM_SAMPLES, device=x.device) % len(x)
    x, y = x[index], y[index]
    layout = Layout.of(module)
    row = layout.row(module).unsqueeze(0)
    state = {name: t[0].clone() for name, t in layout.unstack(row).items()}
    before = layout.stack({name: t.unsqueeze(0) for name, t in state.items()})
    with torch.no_grad(), torch.random.fork_rng(), counters_restored(module):
        _check_evaluation(module.eval(), state, x)
        set_training(module)
        generators = _generators(x.device)
        outputs = _call(module, state, x)
        draws = not all(map(torch.equal, generators, _generators(x.device)))
        after = layout.stack({name: t.unsqueeze(0) for name, t in state.items()})
        again = functional_call(module, state, (x,))
        fewer = functional_call(module, state, (x[:-1],))
        per_sample = _check_loss(loss, outputs, y)
        if loss_kind(loss) == "custom":
            batchable, reason = _check_vmap(module, layout, x, per_sample, lambda o: loss(o, y))
        else:  # srfca's losses work under vmap; to try them imports a lot of torch
            batchable, reason = _check_vmap(module, layout, x, outputs, lambda o: o)
    return ModuleTraits(
        batchable=batchable,
        not_batchable_reason=reason,
        mixes_samples=_has_batch_norm(module) or not torch.allclose(outputs[:-1], fewer, rtol=1e-3),
        updates_buffers=not torch.equal(before, after),
        random=draws or not torch.allclose(outputs, again, rtol=1e-3),
        convolves=any(_unbatched(part) for part in module.modules()),
        activations=_activations(module, state, x[:2]),
        num_outputs=outputs[0].numel(),
    )


def count_classes(module: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> int | None:
    """Return the number of classes, None unless cross entropy compares logits with one label."""
    if loss is not cross_entropy or y.is_floating_point() or y.ndim != 1:
        return None
    module.eval()
    with torch.no_grad():
        outputs = module(x[:2])
    return outputs.shape[1] if outputs.ndim == 2 else None


def check_labels(
    module: nn.Module, loss: Loss, x: Tensor, labels: Tensor, client_ids: list[str], sizes: Tensor
) -> None:
    """Raise an ``InputError`` for the first class label that the module has no output for."""
    if loss is not cross_entropy or labels.is_floating_point():
        return
    module.eval()
    with torch.no_grad():
        classes = module(x[:2]).shape[1]
    require(
        classes > 1,
        "the model has one output, but the targets are classes: give it an output for each class, "
        "two or more; or make the targets floating-point numbers",
    )
    wrong = (
        ((labels < 0) | (labels >= classes)).flatten(1).any(1)
        if labels.ndim > 1
        else ((labels < 0) | (labels >= classes))
    )
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        owner = client_ids[int((sizes.cumsum(0) <= first).sum())]
        values = labels[first].flatten()
        value = int(values[(values < 0) | (values >= classes)][0])
        raise InputError(
            f"client {owner!r} has the label {value}, but the model's outputs are for "
            f"classes 0 to {classes - 1}"
        )


def _call(module: nn.Module, state: dict[str, Tensor], x: Tensor) -> Tensor:
    try:
        outputs = functional_call(module, state, (x,))
    except Exception as error:  # anything that the user's module raises
        shape, reason = tuple(x.shape[1:]), _reason(error)
        raise InputError(f"the model does not take samples of shape {shape}: {reason}") from error
    require(isinstance(outputs, Tensor), f"the model must return a tensor, not {type(outputs)}")
    return torch.as_tensor(outputs)


def _check_evaluation(module: nn.Module, state: dict[str, Tensor], x: Tensor) -> None:
    """Raise an error if outputs in evaluation depend on the other samples of the batch."""
    batch, half = (_call(module, state, inputs) for inputs in (x, x[: len(x) // 2]))
    difference = float((batch[: len(half)] - half).norm())
    require(
        not difference > 0.01 * float(half.norm()),
        "in evaluation the model's output for a sample depends on the other samples of the batch, "
        "so its loss is not defined: a BatchNorm must keep running statistics",
    )


def _generators(device: torch.device) -> list[Tensor]:
    """Return the states of the random number generators."""
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *cuda]


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"


def _check_loss(loss: Loss, outputs: Tensor, y: Tensor) -> Tensor:
    try:
        losses = loss(outputs, y.clamp(0, outputs.shape[1] - 1) if loss is cross_entropy else y)
    except Exception as error:  # anything that the user's loss raises
        raise InputError(
            f"the loss does not fit the model's outputs of shape {tuple(outputs.shape[1:])} and "
            f"targets of shape {tuple(y.shape[1:])}: {_reason(error)}"
        ) from error
    require(
        losses.shape == y.shape[:1],
        f"the loss must return one value for each of {len(y)} samples, "
        f"not a tensor of shape {tuple(losses.shape)}",
    )
    return losses


def _check_vmap(
    module: nn.Module,
    layout: Layout,
    x: Tensor,
    expected: Tensor,
    function: Callable[[Tensor], Tensor],
) -> tuple[bool, str]:
    """Return whether two copies in one ``vmap`` give what one gives alone, and why not.

    Args:
        module: The module.
        layout: Of its rows.
        x: ``[n, ...]`` samples.
        expected: What the function of a single module's outputs is.
        function: Of the outputs.
    """
    pair = layout.unstack(layout.row(module).repeat(2, 1))

    def one(state: dict[str, Tensor], x: Tensor) -> Tensor:
        return function(functional_call(module, state, (x,)))

    try:
        both = vmap(one)(pair, torch.stack([x, x]))
    except RuntimeError as error:
        return False, str(error).split(". ")[0]
    if not torch.allclose(both, expected.expand_as(both), rtol=1e-3, atol=1e-4):
        return False, "vmap gives another result than a single client"
    return True, ""


def _unbatched(part: nn.Module) -> bool:
    recurrent = isinstance(part, nn.RNNBase) and not isinstance(part, SteppedLSTM)
    return recurrent or isinstance(part, nn.modules.conv._ConvNd)


def _has_batch_norm(module: nn.Module) -> bool:
    norms = (part for part in module.modules() if isinstance(part, _BatchNorm))
    return any(norm.training for norm in norms)


def _activations(module: nn.Module, state: dict[str, Tensor], x: Tensor) -> int:
    counted = [x.numel()]

    def count(part: nn.Module, inputs: object, output: object) -> None:
        if isinstance(part, nn.RNNBase) and isinstance(output, tuple):
            counted.append(_LSTM_ACTIVATIONS * part.num_layers * output[0].numel())
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
