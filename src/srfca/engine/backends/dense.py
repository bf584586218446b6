"""Dense networks: batched products instead of ``vmap``, and gradients without autograd.

Half of the time of a small network's step is overhead of autograd. The gradients of a sequence of
linear layers and activations are two products per layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from srfca.engine.backends.autograd import Gradients, Network, Precision, State
from srfca.engine.loss import Loss, cross_entropy, smoothed

_Backward = Callable[[Tensor, Tensor], Tensor]
"""From the gradient after an activation and its output to the gradient before it, in place."""

_ACTIVATIONS: dict[type[nn.Module] | None, tuple[Callable[[Tensor], Tensor], _Backward]] = {
    None: (lambda out: out, lambda gradient, out: gradient),
    nn.ReLU: (torch.relu_, lambda gradient, out: gradient.mul_(out.sign())),
    nn.Tanh: (torch.tanh_, lambda gradient, out: gradient.mul_(1 - out * out)),
    nn.Sigmoid: (torch.sigmoid_, lambda gradient, out: gradient.mul_(out * (1 - out))),
}


@dataclass(frozen=True)
class _Layer:
    weight: str
    bias: str | None
    activation: type[nn.Module] | None


class DenseNetwork(Network):
    """Linear layers and activations in sequence, with cross entropy or squared error."""

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        precision: Precision = "float32",
        compile: bool = False,
    ) -> None:
        super().__init__(module, loss, precision, compile)
        self.layers = _layers(module)
        self.relu_only = {layer.activation for layer in self.layers} <= {nn.ReLU, None}
        """Whether there is no activation but ReLU."""

    def outputs(self, state: State, x: Tensor) -> Tensor:
        """Return the outputs ``[c, b, out]`` of c models, each on its samples ``[c, b, ...]``."""
        x = x.flatten(2)
        for stack in self.stacks(state):
            x = stack(x)
        return x

    def losses(self, state: State, x: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the training losses ``[c, b]`` of c models, each on its samples."""
        outputs = self.outputs(state, x)
        loss = smoothed(self.loss, smoothing)
        return loss(outputs.flatten(0, 1), y.flatten(0, 1)).view(y.shape[:2])

    def outputs_of_all(self, state: State, x: Tensor) -> Tensor:
        """Return the outputs ``[k, n, out]`` of k models on the same samples."""
        first, *rest = self.stacks(state)
        out = first.on_one(x.flatten(1))
        for stack in rest:
            out = stack(out)
        return out

    def losses_of_all(self, state: State, x: Tensor, y: Tensor) -> Tensor:
        """Return the losses ``[k, n]`` of k models on the same samples, equal for equal models."""
        out = self.outputs_of_all(state, x)
        count = len(out)
        targets = y.expand(count, *y.shape).flatten(0, 1)
        return self.loss(out.reshape(len(targets), -1), targets).view(count, -1)

    def gradients(self, state: State, smoothing: float = 0.0) -> DenseGradients:
        """Return what computes the gradients of c models, whose state is changed in place."""
        return DenseGradients(self, state, smoothing)

    def stacks(self, state: State) -> list[_Stack]:
        """Return the layers of c models."""
        return [_Stack(layer, state) for layer in self.layers]


class DenseGradients(Gradients):
    """Gradients without autograd."""

    def __init__(self, network: DenseNetwork, state: State, smoothing: float = 0.0) -> None:
        super().__init__(network, state, smoothing)
        self._stacks = network.stacks(state)
        self._cross_entropy = network.loss is cross_entropy

    def compute(self, x: Tensor, y: Tensor, weights: Tensor) -> None:
        """Write the gradients of the weighted losses to ``.grad``; weights are ``[c, b]``."""
        for stack, inputs, gradient in self._backward(x, y, weights):
            torch.bmm(gradient.mT, inputs, out=_gradient_of(stack.weight))
            if stack.bias is not None:
                torch.sum(gradient, 1, out=_gradient_of(stack.bias))

    def descend(self, x: Tensor, y: Tensor, weights: Tensor, rate: float) -> None:
        """Take a step of plain gradient descent, without storing gradients."""
        for stack, inputs, gradient in self._backward(x, y, weights):
            stack.weight.baddbmm_(gradient.mT, inputs, alpha=-rate)
            if stack.bias is not None:
                stack.bias.sub_(gradient.sum(1), alpha=rate)

    def _backward(
        self, x: Tensor, y: Tensor, weights: Tensor
    ) -> Iterator[tuple[_Stack, Tensor, Tensor]]:
        """Yield each layer, from the last to the first, its inputs and the gradient of its outputs.

        A layer that has been yielded may be changed: its weights are not needed any more.
        """
        activations = [x.flatten(2)]
        for stack in self._stacks:
            activations.append(stack(activations[-1]))
        out = activations.pop()
        gradient = self._loss_gradient(out, y, weights.unsqueeze(-1))
        for stack in reversed(self._stacks):
            gradient, out = stack.backward(gradient, out), activations.pop()
            previous = torch.bmm(gradient, stack.weight) if activations else gradient
            yield stack, out, gradient
            gradient = previous

    def _loss_gradient(self, outputs: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Return the gradient of the weighted losses by the outputs: ``[c, b, out]``."""
        if self._cross_entropy:
            gradient = outputs.softmax(-1).mul_(weights)
            if self._smoothing:
                gradient.sub_(weights * (self._smoothing / outputs.shape[-1]))
                weights = weights * (1 - self._smoothing)
            return gradient.scatter_add_(-1, y.unsqueeze(-1), -weights)
        return (outputs - y.reshape(outputs.shape)).mul_(weights * (2 / outputs.shape[-1]))


class _Stack:
    """A layer of c models, from ``[c, b, in]`` to ``[c, b, out]``."""

    def __init__(self, layer: _Layer, state: State) -> None:
        self.weight = state[layer.weight]
        self.bias = None if layer.bias is None else state[layer.bias]
        self._weight_t = self.weight.mT
        self._bias_row = None if self.bias is None else self.bias.unsqueeze(1)
        self._activate, self._backward = _ACTIVATIONS[layer.activation]

    def __call__(self, x: Tensor) -> Tensor:
        if self._bias_row is None:
            return self._activate(torch.bmm(x, self._weight_t))
        return self._activate(torch.baddbmm(self._bias_row, x, self._weight_t))

    def on_one(self, x: Tensor) -> Tensor:
        """Apply all models to the same inputs ``[b, in]``."""
        if not x.is_cuda:
            return self(x.expand(len(self.weight), *x.shape))
        # one large product is faster on a GPU; on a CPU its columns may be rounded differently
        bias = None if self.bias is None else self.bias.flatten()
        out = self._activate(functional.linear(x, self.weight.flatten(0, 1), bias))
        return out.view(len(x), len(self.weight), -1).transpose(0, 1)

    def backward(self, gradient: Tensor, out: Tensor) -> Tensor:
        """Return the gradient before the activation, given that after it and its output."""
        return self._backward(gradient, out)


def is_dense(module: nn.Module, x: Tensor) -> bool:
    """Return whether a module is a sequence of linear layers, each with at most one activation."""
    parts = _in_order(module)
    kinds = [type(part) for part in parts if type(part) in (nn.Linear, *_ACTIVATIONS)]
    layers = [part for part in parts if type(part) is nn.Linear]
    supported = all(
        _flattens(p) or type(p) in (nn.Linear, nn.Identity, *_ACTIVATIONS) for p in parts
    )
    return (
        supported
        and len({id(p) for p in module.parameters()}) == sum(map(_num_parameters, layers)) > 0
        and _alternates(kinds)
        and (x.ndim == 2 or _flattens(parts[0]))
        and x.is_floating_point()
        and all(t.requires_grad for t in module.parameters())
        and not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    )


def _num_parameters(layer: nn.Module) -> int:
    return len(layer._parameters) - (layer._parameters["bias"] is None)


def _flattens(part: nn.Module) -> bool:
    return type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1)


def _alternates(types: list[type[nn.Module]]) -> bool:
    """Return whether every activation follows a linear layer."""
    pairs = zip([nn.ReLU, *types], types, strict=False)
    return all(before is nn.Linear or after is nn.Linear for before, after in pairs)


def _in_order(module: nn.Module) -> list[nn.Module]:
    """Return the layers in the order of the forward pass, repeated ones repeatedly."""
    if type(module) is not nn.Sequential:
        return [module]
    return [part for child in module for part in _in_order(child)]


def _layers(module: nn.Module) -> list[_Layer]:
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
    """Return the gradient of a parameter, allocated if need be."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
