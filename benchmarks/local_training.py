"""Local training of 100 clients, MLP 784-200-10, batch size 50, Adam, without any aggregation.

python benchmarks/run.py --only local_training
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import torch
from harness import Contestant, serve
from plain import train
from setting import (
    Setting,
    best_threads,
    client_arrays,
    mlp,
    parse_setting,
    thread_label,
    to_row,
    torch_threads,
    training_flops,
)
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from srfca import ClientData, LocalTraining, Simulation
from srfca.federation import Train
from srfca.random import Key, batches, client_words, streams

LR = 0.001
KEY = Key(0, "benchmark")
MATRIX_SIZE = 2048
"""Rows of the square matrices whose product measures the limit of the machine."""


def contestants(setting: Setting) -> dict[str, Contestant]:
    """Return the contestants, all with the same data, batches and initial model."""
    x, y = client_arrays(setting)
    data = ClientData.from_arrays(list(zip(x, y, strict=True)))
    federation, by_torch = (
        Simulation(data, mlp(setting.hidden), device="cpu", validation=0.0) for _ in range(2)
    )
    by_torch._trainer._executor.uses_numba = False
    starts = federation.initial_model(0).repeat(setting.num_clients, 1)
    local = LocalTraining(
        steps=setting.local_steps, local_steps=setting.local_steps,
        batch_size=setting.batch_size, optimizer="adam", lr=LR,
    )  # fmt: skip
    stream = streams(KEY, client_words(data.client_ids))
    index = batches(stream, federation.sizes, setting.batch_size, setting.local_steps)

    def srfca() -> float:
        request = Train(range(setting.num_clients), starts, local, KEY)
        return mean_norm(federation.ask(request).values)

    def without_numba() -> float:
        request = Train(range(setting.num_clients), starts, local, KEY)
        return mean_norm(by_torch.ask(request).values)

    def indexed(count: int, fused: bool = False) -> Tensor:
        rows = []
        for inputs, targets, samples in list(zip(x, y, index, strict=True))[:count]:
            module = mlp(setting.hidden)
            optimizer = torch.optim.Adam(module.parameters(), lr=LR, fused=fused)
            train(module, optimizer, zip(inputs[samples], targets[samples], strict=True))
            rows.append(to_row(module))
        return torch.stack(rows)

    def loaded(count: int) -> Tensor:
        rows = []
        for inputs, targets, samples in list(zip(x, y, index, strict=True))[:count]:
            module = mlp(setting.hidden)
            optimizer = torch.optim.Adam(module.parameters(), lr=LR)
            loader = DataLoader(TensorDataset(inputs, targets), batch_sampler=samples.tolist())
            train(module, optimizer, loader)
            rows.append(to_row(module))
        return torch.stack(rows)

    def plain(name: str, loop: Callable[[int], Tensor]) -> tuple[str, Contestant]:
        count = best_threads(lambda: loop(2))

        def run() -> float:
            with torch_threads(count):
                return mean_norm(loop(setting.num_clients))

        return f"{name}, {thread_label(count)}", run

    def vectorized() -> float:
        base = mlp(setting.hidden)
        stacked, _ = stack_module_state([deepcopy(base) for _ in range(setting.num_clients)])
        parameters = {name: p.detach().requires_grad_() for name, p in stacked.items()}
        optimizer = torch.optim.Adam(parameters.values(), lr=LR, fused=True)

        def loss(state: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return functional.cross_entropy(functional_call(base, state, (x,)), y)

        gradients = vmap(grad(loss))
        clients = torch.arange(setting.num_clients).unsqueeze(1)
        for step in range(setting.local_steps):
            samples = index[:, step]
            state = {name: p.detach() for name, p in parameters.items()}
            inputs, targets = x[clients, samples], y[clients, samples]
            for name, gradient in gradients(state, inputs, targets).items():
                parameters[name].grad = gradient
            optimizer.step()
        return mean_norm(torch.cat([p.detach().flatten(1) for p in parameters.values()], dim=1))

    size = MATRIX_SIZE // 8 if setting.quick else MATRIX_SIZE
    a, b = torch.randn(size, size), torch.randn(size, size)
    out = torch.empty(size, size)
    products = max(1, round(training_flops(setting, setting.local_steps) / (2 * size**3)))

    def limit() -> None:
        for _ in range(products):
            torch.mm(a, b, out=out)

    plain_loops = dict(
        [
            plain("plain loop with a DataLoader", loaded),
            plain("plain loop, batches ready-made", indexed),
            plain("the same, fused Adam", partial(indexed, fused=True)),
        ]
    )
    return {
        "srfca": srfca,
        "srfca without numba": without_numba,
        **plain_loops,
        "torch.func.vmap, all clients": vectorized,
        "matrix-multiply limit": limit,
    }


def mean_norm(rows: Tensor) -> float:
    """Return the mean norm of the clients' models."""
    return float(rows.norm(dim=1).mean())


if __name__ == "__main__":
    serve(contestants(parse_setting()))
