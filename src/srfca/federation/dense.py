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
from srfca.federation.network import Network, State
from srfca.federation.recurrent import step_lstms

_Slope = Callable[[Tensor, Tensor], Tensor]
"""From the slope behind an activation and what it put out to the slope before it, in place."""

_ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], _Slope]] = {
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

    def outputs(self, state: State, x: Tensor) -> Tensor:
        """Outputs ``[c, b, out]`` of c models, each on its own samples ``[c, b, ...]``."""
        return self._forward(state, x)[-1]

    def losses(self, state: State, x: Tensor, y: Tensor) -> Tensor:
        """Losses ``[c, b]`` of c models in training, each on its own samples ``[c, b, ...]``."""
        outputs = self.outputs(state, x)
        return self.loss(outputs.flatten(0, 1), y.flatten(0, 1)).view(y.shape[:2])

    def losses_of_all(self, state: State, x: Tensor, y: Tensor) -> Tensor:
        """Losses ``[k, n]`` of k models on the same samples: equal models have equal losses."""
        first, *rest = self.layers
        weight, x = state[first.weight], x.flatten(1)
        count, width, _ = weight.shape
        if x.is_cuda:  # one large product is faster there; a CPU may round its columns unlike
            bias = None if first.bias is None else state[first.bias].flatten()
            out = functional.linear(x, weight.flatten(0, 1), bias)  # [n, k * width]
            out = _activate(out, first).view(-1, count, width).transpose(0, 1)
        else:
            out = _apply(state, first, x.expand(count, *x.shape))
        for layer in rest:
            out = _apply(state, layer, out)
        targets = y.expand(count, *y.shape).flatten(0, 1)
        return self.loss(out.reshape(len(targets), -1), targets).view(count, -1)

    @torch.no_grad()
    def gradient(self, state: State, x: Tensor, y: Tensor, weights: Tensor) -> None:
        """Leave each model's gradient of its weighted losses in ``.grad``; weights are [c, b]."""
        for layer, into, slope in self._slopes(state, x, y, weights):
            torch.bmm(slope.mT, into, out=_gradient_of(state[layer.weight]))
            if layer.bias is not None:
                torch.sum(slope, 1, out=_gradient_of(state[layer.bias]))

    @torch.no_grad()
    def descend(self, state: State, x: Tensor, y: Tensor, weights: Tensor, rate: float) -> None:
        """A step of plain gradient descent: gradients are never written down."""
        for layer, into, slope in self._slopes(state, x, y, weights):
            state[layer.weight].baddbmm_(slope.mT, into, alpha=-rate)
            if layer.bias is not None:
                state[layer.bias].sub_(slope.sum(1), alpha=rate)

    def _slopes(
        self, state: State, x: Tensor, y: Tensor, weights: Tensor
    ) -> Iterator[tuple[_Layer, Tensor, Tensor]]:
        """From the last layer to the first: what goes in, and the slope of what comes out.

        What follows does not need the state of a layer any more that has been given out.
        """
        passed = self._forward(state, x)
        slope = self._slope(passed.pop(), y, weights.unsqueeze(-1))
        for number in range(len(self.layers) - 1, -1, -1):
            layer, into = self.layers[number], passed.pop()
            before = torch.bmm(slope, state[layer.weight]) if number else slope
            yield layer, into, slope
            activation = self.layers[number - 1].activation
            if number and activation is not None:
                before = _ACTIVATIONS[activation][1](before, into)
            slope = before

    def _forward(self, state: State, x: Tensor) -> list[Tensor]:
        """What goes into each layer, and what comes out of the last: ``[c, b, width]`` each."""
        passed = [x.flatten(2)]
        for layer in self.layers:
            passed.append(_apply(state, layer, passed[-1]))
        return passed

    def _slope(self, outputs: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """The slope of weighted losses before the last activation: ``[c, b, out]``."""
        if self.loss is cross_entropy:
            slope = outputs.softmax(-1).mul_(weights)
            slope.scatter_add_(-1, y.unsqueeze(-1), -weights)
        else:
            slope = (outputs - y.reshape(outputs.shape)).mul_(weights * (2 / outputs.shape[-1]))
        last = self.layers[-1].activation
        return slope if last is None else _ACTIVATIONS[last][1](slope, outputs)


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


def _apply(state: State, layer: _Layer, x: Tensor) -> Tensor:
    """``[c, b, out]`` from ``[c, b, in]``."""
    weight = state[layer.weight].transpose(1, 2)
    if layer.bias is None:
        return _activate(torch.bmm(x, weight), layer)
    return _activate(torch.baddbmm(state[layer.bias].unsqueeze(1), x, weight), layer)


def _activate(out: Tensor, layer: _Layer) -> Tensor:
    return out if layer.activation is None else _ACTIVATIONS[layer.activation][0](out)


def _gradient_of(parameter: Tensor) -> Tensor:
    """Where its gradient is written to."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
