"""One federated round of SGD: srfca, the plain loop and ``torch.func.vmap``.

``--network`` is the paper's MLP, LEAF's convolutional network or LEAF's LSTM. ``round_flower.py``
and ``round_pfl.py`` do the same with Flower and pfl-research.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from harness import Contestant, serve
from plain import train
from setting import (
    ROUND_LR,
    ROUND_PURPOSE,
    Setting,
    best_threads,
    parse_setting,
    round_arrays,
    round_batches,
    round_network,
    thread_label,
    to_row,
    torch_threads,
)
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional
from torch.nn.utils import vector_to_parameters

from srfca import ClientData, LocalTraining, Simulation
from srfca.aggregation import Mean
from srfca.federation import Round, ask
from srfca.random import Key

LIMIT = "one model on all samples, forward and backward"


def contestants(setting: Setting) -> dict[str, Contestant]:
    """Return the contestants of this environment."""
    w0 = to_row(round_network(setting))
    x, y = round_arrays(setting)
    data = ClientData.from_arrays(list(zip(x, y, strict=True)))
    federation = Simulation(data, round_network(setting), device="cpu", validation=0.0)
    everyone, labels = np.arange(setting.num_clients), np.zeros(setting.num_clients, dtype=np.int64)
    local = LocalTraining(
        steps=1000 * setting.round_steps, local_steps=setting.round_steps,
        batch_size=setting.batch_size, lr=ROUND_LR,
    )  # fmt: skip

    def srfca() -> float:
        request = Round(everyone, w0.unsqueeze(0), labels, local, Key(0, ROUND_PURPOSE), Mean())
        models = ask(federation, request).values
        assert bool(torch.isfinite(models).all())
        return float((models[0] - w0).norm())

    index = round_batches(setting)
    module = round_network(setting)

    def loop(count: int) -> Tensor:
        total = torch.zeros_like(w0)
        for inputs, targets, samples in list(zip(x, y, index, strict=True))[:count]:
            vector_to_parameters(w0.clone(), module.parameters())
            optimizer = torch.optim.SGD(module.parameters(), lr=ROUND_LR)
            train(module, optimizer, zip(inputs[samples], targets[samples], strict=True))
            total += to_row(module)
        return total / count

    count = best_threads(lambda: loop(min(4, setting.num_clients)))

    def plain() -> float:
        with torch_threads(count):
            return float((loop(setting.num_clients) - w0).norm())

    contestants: dict[str, Contestant] = {
        "srfca": srfca, f"plain loop, {thread_label(count)}": plain,
    }  # fmt: skip
    if setting.network != "lstm":  # torch cannot batch LSTMs of several models on a CPU
        contestants["torch.func.vmap, all clients"] = partial(vectorized, setting, x, y, index)

    def limit() -> None:
        everyone = torch.arange(setting.num_clients).unsqueeze(1)
        for step in range(setting.round_steps):
            inputs, targets = x[everyone, index[:, step]], y[everyone, index[:, step]]
            functional.cross_entropy(module(inputs.flatten(0, 1)), targets.flatten()).backward()
        module.zero_grad(set_to_none=True)

    return {**contestants, LIMIT: limit}


def vectorized(setting: Setting, x: Tensor, y: Tensor, index: Tensor) -> float:
    """Train all clients' models as one stack, and return the norm of the mean step."""
    base = round_network(setting)
    w0 = to_row(base)
    stacked, _ = stack_module_state([base] * setting.num_clients)
    parameters = {name: p.detach().requires_grad_() for name, p in stacked.items()}
    optimizer = torch.optim.SGD(parameters.values(), lr=ROUND_LR)

    def loss(state: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(base, state, (x,)), y)

    everyone = torch.arange(setting.num_clients).unsqueeze(1)
    for step in range(setting.round_steps):
        state = {name: p.detach() for name, p in parameters.items()}
        inputs, targets = x[everyone, index[:, step]], y[everyone, index[:, step]]
        for name, gradient in vmap(grad(loss))(state, inputs, targets).items():
            parameters[name].grad = gradient
        optimizer.step()
    rows = torch.cat([p.detach().flatten(1) for p in parameters.values()], dim=1)
    return float((rows.mean(0) - w0).norm())


if __name__ == "__main__":
    serve(contestants(parse_setting()))
