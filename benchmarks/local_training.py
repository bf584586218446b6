"""Local training of 100 clients, MLP 784-200-10, batch 50, Adam: no client waits for another.

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
    clients,
    mlp,
    named,
    row,
    setting,
    threads,
    training_flops,
)
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from srfca import ClientData, Simulation, Work
from srfca.random import Key, batches, client_words, streams

LR = 0.001
KEY = Key(0, "benchmark")
SIZE = 2048
"""Of the square matrices whose product is the machine's limit."""


def contestants(sizes: Setting) -> dict[str, Contestant]:
    """All of them, on the same data, batches and w0."""
    x, y = clients(sizes)
    data = ClientData.from_arrays(list(zip(x, y, strict=True)))
    federation, by_torch = (
        Simulation(data, mlp(sizes.hidden), device="cpu", validation=0.0) for _ in range(2)
    )
    by_torch._training._lanes.compiles = False
    starts = federation.initial(0).repeat(sizes.clients, 1)
    work = Work(
        steps=sizes.local_steps, local_steps=sizes.local_steps, batch_size=sizes.batch,
        optimizer="adam", lr=LR,
    )  # fmt: skip
    stream = streams(KEY, client_words(data.client_ids))
    index = batches(stream, federation.sizes, sizes.batch, sizes.local_steps)  # [m, steps, b]

    def srfca() -> float:
        return check(federation.fit(starts, range(sizes.clients), work, KEY))

    def without_numba() -> float:
        return check(by_torch.fit(starts, range(sizes.clients), work, KEY))

    def loop(count: int, fused: bool = False) -> Tensor:
        rows = []
        for own_x, own_y, at in list(zip(x, y, index, strict=True))[:count]:
            module = mlp(sizes.hidden)
            optimizer = torch.optim.Adam(module.parameters(), lr=LR, fused=fused)
            train(module, optimizer, zip(own_x[at], own_y[at], strict=True))
            rows.append(row(module))
        return torch.stack(rows)

    def loaded(count: int) -> Tensor:
        rows = []
        for own_x, own_y, at in list(zip(x, y, index, strict=True))[:count]:
            module = mlp(sizes.hidden)
            optimizer = torch.optim.Adam(module.parameters(), lr=LR)
            loader = DataLoader(TensorDataset(own_x, own_y), batch_sampler=at.tolist())
            train(module, optimizer, loader)
            rows.append(row(module))
        return torch.stack(rows)

    def plain(name: str, loop: Callable[[int], Tensor]) -> tuple[str, Contestant]:
        count = best_threads(lambda: loop(2))

        def run() -> float:
            with threads(count):
                return check(loop(sizes.clients))

        return f"{name}, {named(count)}", run

    def all_at_once() -> float:
        base = mlp(sizes.hidden)
        stacked, _ = stack_module_state([deepcopy(base) for _ in range(sizes.clients)])
        parameters = {name: p.detach().requires_grad_() for name, p in stacked.items()}
        optimizer = torch.optim.Adam(parameters.values(), lr=LR, fused=True)

        def loss(state: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return functional.cross_entropy(functional_call(base, state, (x,)), y)

        gradient = vmap(grad(loss))
        every = torch.arange(sizes.clients).unsqueeze(1)
        for step in range(sizes.local_steps):
            at = index[:, step]
            state = {name: p.detach() for name, p in parameters.items()}
            for name, slope in gradient(state, x[every, at], y[every, at]).items():
                parameters[name].grad = slope
            optimizer.step()
        return check(torch.cat([p.detach().flatten(1) for p in parameters.values()], dim=1))

    size = SIZE // 8 if sizes.quick else SIZE
    left, right = torch.randn(size, size), torch.randn(size, size)
    out = torch.empty(size, size)
    products = max(1, round(training_flops(sizes, sizes.local_steps) / (2 * size**3)))

    def limit() -> None:
        for _ in range(products):
            torch.mm(left, right, out=out)

    plain_loops = dict(
        [
            plain("plain loop with a DataLoader", loaded),
            plain("plain loop, batches ready-made", loop),
            plain("the same, fused Adam", partial(loop, fused=True)),
        ]
    )
    return {
        "srfca": srfca,
        "srfca without numba": without_numba,
        **plain_loops,
        "torch.func.vmap, all clients": all_at_once,
        "matrix-multiply limit": limit,
    }


def check(rows: Tensor) -> float:
    """The mean norm of the clients' models."""
    return float(rows.norm(dim=1).mean())


if __name__ == "__main__":
    serve(contestants(setting()))
