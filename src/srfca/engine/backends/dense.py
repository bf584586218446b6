"""Dense networks by hand: batched products instead of vmap, and no autograd.

Half of the time of a small network's step goes into autograd's own work. A chain of linear layers
and activations needs none of it: its gradients are two products for each layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from srfca.federation.loss import Loss, cross_entropy, squared_error
from srfca.federation.network import Network, Passes, State
from srfca.federation.recurrent import step_lstms

_Slope = Callable[[Tensor, Tensor], Tensor]
"""From the slope behind an activation and what it put out to the slope before it, in place."""

_ACTIVATIONS: dict[type[nn.Module] | None, tuple[Callable[[Tensor], Tensor], _Slope]] = {
    None: (lambda out: out, lambda slope, out: slope),
    nn.ReLU: (torch.relu_, lambda slope, out: slope.mul_(out.sign())),
    nn.Tanh: (torch.tanh_, lambda slope, out: slope.mul_(1 - out * out)),
    nn.Sigmoid: (torch.sigmoid_, lambda slope, out: slope.mul_(out * (1 - out))),
}


@dataclass(frozen=True)
class _Layer:
    weight: str
    bias: str | None
    activation: type[nn.Module] | None


class Dense(Network):
    """A chain of linear layers and activations, with cross entropy or squared error."""

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        precision: str = "float32",
        compile: bool = False,
    ) -> None:
        super().__init__(module, loss, precision, compile)
        self.layers = _chain(module)
        self.rectified = {layer.activation for layer in self.layers} <= {nn.ReLU, None}
        """Whether all activations are ReLU."""

    def outputs(self, state: State, x: Tensor) -> Tensor:
        """Outputs ``[c, b, out]`` of c models, each on its own samples ``[c, b, ...]``."""
        x = x.flatten(2)
        for stack in self.stacks(state):
            x = stack(x)
        return x

    def losses(self, state: State, x: Tensor, y: Tensor) -> Tensor:
        """Losses ``[c, b]`` of c models in training, each on its own samples ``[c, b, ...]``."""
        outputs = self.outputs(state, x)
        return self.loss(outputs.flatten(0, 1), y.flatten(0, 1)).view(y.shape[:2])

    def losses_of_all(self, state: State, x: Tensor, y: Tensor) -> Tensor:
        """Losses ``[k, n]`` of k models on the same samples: equal models have equal losses."""
        first, *rest = self.stacks(state)
        out, count = first.on_one(x.flatten(1)), len(first.weight)
        for stack in rest:
            out = stack(out)
        targets = y.expand(count, *y.shape).flatten(0, 1)
        return self.loss(out.reshape(len(targets), -1), targets).view(count, -1)

    def passes(self, state: State) -> DensePasses:
        """The passes of c models in training, whose state stays where it is."""
        return DensePasses(self, state)

    def stacks(self, state: State) -> list[_Stack]:
        """The layers of c models."""
        return [_Stack(layer, state) for layer in self.layers]


class DensePasses(Passes):
    """Gradients by hand: call it without autograd."""

    def __init__(self, network: Dense, state: State) -> None:
        super().__init__(network, state)
        self._stacks = network.stacks(state)
        self._cross_entropy = network.loss is cross_entropy

    def gradient(self, x: Tensor, y: Tensor, weights: Tensor) -> None:
        """Leave each model's gradient of its weighted losses in ``.grad``; weights are [c, b]."""
        for stack, into, slope in self._slopes(x, y, weights):
            torch.bmm(slope.mT, into, out=_gradient_of(stack.weight))
            if stack.bias is not None:
                torch.sum(slope, 1, out=_gradient_of(stack.bias))

    def descend(self, x: Tensor, y: Tensor, weights: Tensor, rate: float) -> None:
        """A step of plain gradient descent: gradients are never written down."""
        for stack, into, slope in self._slopes(x, y, weights):
            stack.weight.baddbmm_(slope.mT, into, alpha=-rate)
            if stack.bias is not None:
                stack.bias.sub_(slope.sum(1), alpha=rate)

    def _slopes(
        self, x: Tensor, y: Tensor, weights: Tensor
    ) -> Iterator[tuple[_Stack, Tensor, Tensor]]:
        """From the last layer to the first: what goes in, and the slope of what comes out.

        What follows does not need the weights of a layer any more that has been given out.
        """
        passed = [x.flatten(2)]
        for stack in self._stacks:
            passed.append(stack(passed[-1]))
        out = passed.pop()
        slope = self._slope(out, y, weights.unsqueeze(-1))
        for stack in reversed(self._stacks):
            slope, out = stack.before(slope, out), passed.pop()
            further = torch.bmm(slope, stack.weight) if passed else slope
            yield stack, out, slope
            slope = further

    def _slope(self, outputs: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """The slope of weighted losses behind the last activation: ``[c, b, out]``."""
        if self._cross_entropy:
            slope = outputs.softmax(-1).mul_(weights)
            return slope.scatter_add_(-1, y.unsqueeze(-1), -weights)
        return (outputs - y.reshape(outputs.shape)).mul_(weights * (2 / outputs.shape[-1]))


class _Stack:
    """A layer of c models, from ``[c, b, in]`` to ``[c, b, out]``."""

    def __init__(self, layer: _Layer, state: State) -> None:
        self.weight = state[layer.weight]
        self.bias = None if layer.bias is None else state[layer.bias]
        self._across = self.weight.mT
        self._row = None if self.bias is None else self.bias.unsqueeze(1)
        self._activate, self._before = _ACTIVATIONS[layer.activation]

    def __call__(self, x: Tensor) -> Tensor:
        if self._row is None:
            return self._activate(torch.bmm(x, self._across))
        return self._activate(torch.baddbmm(self._row, x, self._across))

    def on_one(self, x: Tensor) -> Tensor:
        """All models on the same inputs ``[b, in]``."""
        if not x.is_cuda:
            return self(x.expand(len(self.weight), *x.shape))
        # one large product is faster there; a CPU may round its columns unlike
        bias = None if self.bias is None else self.bias.flatten()
        out = self._activate(functional.linear(x, self.weight.flatten(0, 1), bias))
        return out.view(len(x), len(self.weight), -1).transpose(0, 1)

    def before(self, slope: Tensor, out: Tensor) -> Tensor:
        """The slope before the activation, from that behind it and what it put out; in place."""
        return self._before(slope, out)


def network_of(
    module: nn.Module, loss: Loss, x: Tensor, y: Tensor, precision: str, compile: bool
) -> Network:
    """The fastest network for a module, whose samples are like ``x`` and ``y`` ``[n, ...]``."""
    dense = (
        loss in (cross_entropy, squared_error)
        and _is_chain(module, x)
        and (y.ndim == 1 or loss is squared_error)
        and precision != "bf16"
        and not compile
    )
    if dense:
        return Dense(module, loss, precision, compile)
    if any(p.is_cuda for p in module.parameters()):
        step_lstms(module)
    return Network(module, loss, precision, compile)


def _is_chain(module: nn.Module, x: Tensor) -> bool:
    """Whether a module is nothing but linear layers, at most one activation after each."""
    parts = _in_order(module)
    kinds = [type(part) for part in parts if type(part) in (nn.Linear, *_ACTIVATIONS)]
    layers = [part for part in parts if type(part) is nn.Linear]
    known = all(_flattens(p) or type(p) in (nn.Linear, nn.Identity, *_ACTIVATIONS) for p in parts)
    return (
        known
        and len({id(p) for p in module.parameters()}) == sum(map(_entries, layers)) > 0
        and _alternates(kinds)
        and (x.ndim == 2 or _flattens(parts[0]))
        and x.is_floating_point()
        and all(t.requires_grad for t in module.parameters())
        and not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    )


def _entries(layer: nn.Module) -> int:
    return len(layer._parameters) - (layer._parameters["bias"] is None)


def _flattens(part: nn.Module) -> bool:
    return type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1)


def _alternates(types: list[type[nn.Module]]) -> bool:
    """Whether every activation follows a linear layer."""
    pairs = zip([nn.ReLU, *types], types, strict=False)
    return all(before is nn.Linear or after is nn.Linear for before, after in pairs)


def _in_order(module: nn.Module) -> list[nn.Module]:
    """The layers in the order of the pass, as often as they are in it."""
    if type(module) is not nn.Sequential:
        return [module]
    return [part for child in module for part in _in_order(child)]


def _chain(module: nn.Module) -> list[_Layer]:
    names = {id(part): name for name, part in module.named_modules()}
    layers: list[_Layer] = []
    for part in _in_order(module):
        prefix = f"{names[id(part)]}." if names[id(part)] else ""
        if type(part) is nn.Linear:
            bias = None if part.bias is None else f"{prefix}bias"
            layers.append(_Layer(f"{prefix}weight", bias, None))
        elif type(part) in _ACTIVATIONS:
            layers[-1] = _Layer(layers[-1].weight, layers[-1].bias, type(part))
    return layers


def _gradient_of(parameter: Tensor) -> Tensor:
    """Where its gradient is written to."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
