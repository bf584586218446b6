"""Whole SR-FCA on rotated MNIST: srfca, and the sequential way.

Rotated digits where MNIST is not found (``SRFCA_DATA``). R = 2, as in the paper; srfca spares the
second REFINE if the first has changed nothing, as the method's text allows, the sequential way in
the manner of the authors' code does not. Beside it the same without DataLoaders and with one
REFINE: what a loop over clients takes at the least.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from dataclasses import replace

import torch
from harness import Contestant, serve
from sequential import Sequential
from setting import Setting, best_threads, named, row, setting, threads

from srfca import SRFCA, ClientData, InputError, Partition, Simulation, Work, data, models
from srfca.random import Key

SEED = 0
DIGITS = ", rotated digits in the place of MNIST"


def federation(sizes: Setting) -> tuple[ClientData, int, Work, float, str]:
    """Clients, inputs, how they train, a lambda that lies between the groups, what to say of it."""
    if not sizes.quick:
        work = Work(steps=250, local_steps=5, batch_size=50, optimizer="adam", lr=0.001)
        try:
            return data.rotated_mnist(num_clients=sizes.clients), 784, work, 1.5, ""
        except InputError as error:
            print(f"rotated digits, for want of MNIST: {error}", file=sys.stderr)
    steps = 30 if sizes.quick else 60
    work = Work(steps=steps, local_steps=5, batch_size=10, optimizer="adam", lr=0.01)
    return data.rotated_digits(num_clients=12 if sizes.quick else 40), 64, work, 2.0, DIGITS


def contestants(sizes: Setting) -> dict[str, Contestant]:
    """Both, with the same batches; each tells the norm of its models."""
    clients, inputs, work, threshold, said = federation(sizes)
    module = models.mlp(inputs, sizes.hidden, 10)()
    w0 = deepcopy(module.state_dict())
    simulation = Simulation(clients, deepcopy(module), device="cpu", validation=0.0)
    method = SRFCA(work=work, threshold=threshold, refine_steps=2)
    samples = [clients.train.of(client) for client in range(len(clients.clients))]
    sequential = Sequential(
        clients.clients, [x for x, _ in samples], [y for _, y in samples], module, work, threshold,
        refine_steps=2,
    )  # fmt: skip
    found: dict[str, Partition] = {}

    def compare(name: str, partition: Partition) -> float:
        found[name] = partition
        first = next(iter(found.values()))
        if partition != first:
            raise RuntimeError(f"{name} finds other clusters: {partition}, {first}")
        return partition.num_clusters

    def srfca() -> float:
        return compare("srfca", method.fit(simulation, SEED).partition)

    def lazy() -> float:
        few = replace(method, all_pairs=0)
        return compare("srfca, lazy pivots", few.fit(simulation, SEED).partition)

    def one_by_one(name: str, how: Sequential) -> tuple[str, Contestant]:
        index = how.batches(Key(0, "threads"), steps=50)[0]
        count = best_threads(lambda: how.fit(row(module), 0, index))

        def run() -> float:
            module.load_state_dict(w0)
            with threads(count):
                partition, _ = how.sr_fca(SEED)
            return compare(name, partition)

        return f"{name}, {named(count)}{said}", run

    lean = replace(sequential, loaders=False, refine_steps=1)
    return {
        "srfca": srfca,
        "srfca, lazy pivots": lazy,
        **dict(
            [
                one_by_one("sequential, pair by pair", sequential),
                one_by_one("the same without DataLoaders, one REFINE", lean),
            ]
        ),
    }


if __name__ == "__main__":
    torch.manual_seed(SEED)
    serve(contestants(setting()))
