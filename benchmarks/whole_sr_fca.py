"""Whole SR-FCA on rotated MNIST: srfca, and the sequential implementation.

Rotated digits replace MNIST where it is not found (``SRFCA_DATA``). R = 2, as in the paper. srfca
skips the second REFINE if the first one changed nothing, as the paper allows; the sequential
implementation does both, like the authors' code. A variant of it without DataLoaders and with one
REFINE shows the minimum time of a loop over clients.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from harness import Contestant, serve
from sequential import Sequential
from setting import Setting, best_threads, parse_setting, thread_label, to_row, torch_threads

from srfca import SRFCA, ClientData, InputError, LocalTraining, Partition, Simulation, data, models
from srfca.random import Key

SEED = 0
DIGITS = ", rotated digits instead of MNIST"


@dataclass(frozen=True)
class Problem:
    """A federation to cluster.

    Args:
        data: Data of the clients.
        inputs: Length of an input.
        local: How clients train.
        threshold: lambda, between the distances inside clusters and those between clusters.
        suffix: Added to the contestants' names.
    """

    data: ClientData
    inputs: int
    local: LocalTraining
    threshold: float
    suffix: str


def load_problem(setting: Setting) -> Problem:
    """Return rotated MNIST, or rotated digits where it is missing or the sizes are tiny."""
    if not setting.quick:
        local = LocalTraining(steps=250, local_steps=5, batch_size=50, optimizer="adam", lr=0.001)
        try:
            clients = data.rotated_mnist(num_clients=setting.num_clients)
            return Problem(clients, 784, local, 1.5, "")
        except InputError as error:
            print(f"using rotated digits, MNIST is missing: {error}", file=sys.stderr)
    steps = 30 if setting.quick else 60
    local = LocalTraining(steps=steps, local_steps=5, batch_size=10, optimizer="adam", lr=0.01)
    clients = data.rotated_digits(num_clients=12 if setting.quick else 40)
    return Problem(clients, 64, local, 2.0, DIGITS)


def contestants(setting: Setting) -> dict[str, Contestant]:
    """Return the contestants, all with the same batches; each returns its number of clusters."""
    problem = load_problem(setting)
    module = models.mlp(problem.inputs, setting.hidden, 10)()
    w0 = deepcopy(module.state_dict())
    simulation = Simulation(problem.data, deepcopy(module), device="cpu", validation=0.0)
    method = SRFCA(
        local=problem.local, threshold=problem.threshold, refine_steps=2, trim=0.1, trim_at_least=0
    )
    samples = [problem.data.train.of(client) for client in range(len(problem.data))]
    sequential = Sequential(
        problem.data.client_ids, [x for x, _ in samples], [y for _, y in samples], module,
        problem.local, problem.threshold, refine_steps=2,
    )  # fmt: skip
    partitions: dict[str, Partition] = {}

    def compare(name: str, partition: Partition) -> float:
        partitions[name] = partition
        first = next(iter(partitions.values()))
        if partition != first:
            raise RuntimeError(f"{name} finds different clusters: {partition}, not {first}")
        return partition.num_clusters

    def srfca() -> float:
        return compare("srfca", method.fit(simulation, SEED).partition)

    def lazy() -> float:
        few_pairs = replace(method, all_pairs=0)
        return compare("srfca, lazy pivots", few_pairs.fit(simulation, SEED).partition)

    def one_by_one(name: str, variant: Sequential) -> tuple[str, Contestant]:
        index = variant.batches(Key(0, "threads"), steps=50)[0]
        count = best_threads(lambda: variant.train_client(to_row(module), 0, index))

        def run() -> float:
            module.load_state_dict(w0)
            with torch_threads(count):
                partition, _ = variant.sr_fca(SEED)
            return compare(name, partition)

        return f"{name}, {thread_label(count)}{problem.suffix}", run

    fastest = replace(sequential, data_loaders=False, refine_steps=1)
    return {
        "srfca": srfca,
        "srfca, lazy pivots": lazy,
        **dict(
            [
                one_by_one("sequential, pair by pair", sequential),
                one_by_one("the same without DataLoaders, one REFINE", fastest),
            ]
        ),
    }


if __name__ == "__main__":
    torch.manual_seed(SEED)
    serve(contestants(parse_setting()))
