"""Concept drift: SR-FCA adapted and fitted again, IFCA, FedDrift and FedAvg continued, the Oracle.

    SRFCA_DATA=... python benchmarks/drift.py --seed 100 --seeds 3

Clients go through the phases of a drift. In every phase each method trains for as many local steps
as adapting SR-FCA took, and is then scored on the clients' test data of that phase. SR-FCA that is
fitted again from scratch is the exception: its steps are in the table. No model is fine-tuned.

A client is placed if most clients of its cluster have its concept; one alone is placed only if no
other client has its concept. The table has how many of the clients that drifted are placed, over
all seeds, and how many others were placed in the phase before and are no longer. The Oracle trains
in the true groups, and IFCA gets the number of all concepts. FedDrift gets a ``delta`` that was
chosen for each data set by validation accuracy, and also trains each client alone, for the first
of its three time steps in a phase.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca import SRFCA, ClientData, LocalTraining, Partition, Result, Simulation, data, models
from srfca.aggregation import Mean
from srfca.federation import Scores
from srfca.methods import FedDrift, Run
from srfca.methods._common.base import Answer
from srfca.methods._common.init import random_models
from srfca.methods._common.result import models_of_clients
from srfca.methods._common.rounds import federated_training
from srfca.methods.adaptation import adapt
from srfca.methods.ifca import alternate

SETTINGS: dict[str, dict[str, Any]] = {
    "sudden": {"drift": "sudden"},
    "incremental": {"drift": "incremental"},
    "recurrent": {"drift": "recurrent"},
    "a quarter changes group": {
        "drift": "sudden", "groups": 3, "new_groups": 0, "drifting": 0.25,
    },
    "a quarter rotates again": {
        "drift": "recurrent", "groups": 3, "new_groups": 1, "drifting": 0.25, "shift": "rotation",
    },
    "no drift, new samples": {
        "drift": "none", "groups": 3, "new_groups": 0, "new_samples": True,
    },
}  # fmt: skip
"""The drifts, by name. The first three are FedCCFA's: one concept, then three label swaps."""


TIME_STEPS = 3
"""Time steps of FedDrift in a phase."""


@dataclass(frozen=True)
class Outcome:
    """How a method does after a phase.

    Args:
        labels: ``[m]`` the cluster of each client, None of a method without clusters.
        models: ``[m, P]`` the model of each client.
        steps: Local steps of a client in the phase, on average.
    """

    labels: NDArray[np.int64] | None
    models: Tensor
    steps: float


@dataclass
class Row:
    """The numbers of a method in a phase, over seeds."""

    accuracy: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    placed: list[int] = field(default_factory=list)
    displaced: list[int] = field(default_factory=list)
    drifted: list[int] = field(default_factory=list)


def main() -> None:
    """Print a table of all phases, as means over seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default="digits,fashion_mnist")
    parser.add_argument("--only", choices=tuple(SETTINGS), help="one drift only")
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--samples", type=int, default=150, help="per client; digits are all dealt")
    parser.add_argument("--alpha", type=float, help="Dirichlet label skew; none if left out")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10, help="of training on, in adapting")
    parser.add_argument("--delta", type=float, default=1.0, help="of FedDrift")
    parser.add_argument("--keep", type=int, default=5, help="adaptations of an empty cluster")
    parser.add_argument("--seed", type=int, default=1000, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--folder", help="the data folder; SRFCA_DATA if left out")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(SETTINGS)
    print("| data | drift | phase | method | accuracy % | steps | placed | displaced |")
    print("|---|---|---|---|---|---|---|---|")
    for dataset in arguments.datasets.split(","):
        for name in names:
            rows: dict[tuple[int, str], Row] = {}
            for seed in range(arguments.seed, arguments.seed + arguments.seeds):
                measure(dataset, SETTINGS[name], arguments, seed, rows)
            for (phase, method), row in rows.items():
                if phase:
                    print(
                        f"| {dataset} | {name} | {phase} | {method} | {describe(row)} |", flush=True
                    )


def describe(row: Row) -> str:
    """Return the cells of a row."""
    deviation = np.std(row.accuracy, ddof=min(1, len(row.accuracy) - 1))
    cells = [f"{np.mean(row.accuracy):.1f} ± {deviation:.1f}", f"{np.mean(row.steps):.0f}"]
    if not row.placed:
        return " | ".join([*cells, "", ""])
    placed = f"{sum(row.placed)} of {sum(row.drifted)}" if sum(row.drifted) else ""
    return " | ".join([*cells, placed, str(sum(row.displaced))])


def measure(
    dataset: Any,
    setting: dict[str, Any],
    arguments: Any,
    seed: int,
    rows: dict[tuple[int, str], Row],
) -> None:
    """Run all methods through the phases of a drift, and add their numbers to the rows."""
    num_clients = arguments.clients
    defaults: dict[str, Any] = {"groups": 1, "new_groups": 3, "drifting": 1.0}
    schedule = {**defaults, **{k: v for k, v in setting.items() if k in {*defaults, "drift"}}}
    concepts = data.drift_schedule(num_clients, seed=seed, **schedule)
    phases = data.drifting_image_phases(
        dataset=dataset, num_clients=num_clients, seed=seed, alpha=arguments.alpha,
        samples=None if dataset == "digits" else arguments.samples, folder=arguments.folder,
        **setting,
    )  # fmt: skip
    model = models.mlp(64, 32, 10) if dataset == "digits" else models.mlp(784, 64, 10)
    lr = 0.5 if dataset == "digits" else 0.1
    local = LocalTraining(steps=arguments.steps, batch_size=20, lr=lr)
    adapted = Adapted(local, arguments.rounds, arguments.keep)
    num_concepts = schedule["groups"] + schedule["new_groups"]
    others: dict[str, Callable[[Simulation, int, int], Outcome]] = {
        "SR-FCA, fitted again": lambda fed, phase, steps: fit_again(fed, local, seed),
        f"IFCA, K={num_concepts}": ContinuedIFCA(num_concepts, local, seed).train,
        "FedDrift": ContinuedFedDrift(arguments.delta, local, seed).train,
        "FedAvg": Continued(local, seed, np.zeros_like(concepts)).train,
        "Oracle": Continued(local, seed, concepts).train,
    }
    before: dict[str, NDArray[np.bool_]] = {}
    for phase, clients in enumerate(phases):
        federation = simulate(clients, model, seed)
        outcomes = {"SR-FCA, adapted": adapted.train(federation, phase, seed)}
        rounds = -(-round(outcomes["SR-FCA, adapted"].steps) // local.local_steps)
        for name, train in others.items():
            outcomes[name] = train(federation, phase, rounds * local.local_steps)
        for name, outcome in outcomes.items():
            row = rows.setdefault((phase, name), Row())
            everyone = np.arange(num_clients)
            scores = federation.ask(Scores(everyone, outcome.models, "test")).values
            assert scores.accuracy is not None
            row.accuracy.append(100 * float(scores.accuracy.mean()))
            row.steps.append(outcome.steps)
            if outcome.labels is None:
                continue
            right = placed(outcome.labels, concepts[phase])
            if phase:
                drifted = concepts[phase] != concepts[phase - 1]
                row.placed.append(int(right[drifted].sum()))
                row.drifted.append(int(drifted.sum()))
                row.displaced.append(int((~right & ~drifted & before[name]).sum()))
            before[name] = right


def simulate(clients: ClientData, model: Any, seed: int) -> Simulation:
    """Return the federation of a phase."""
    return Simulation(clients, model, seed=seed)


def placed(labels: NDArray[np.int64], concepts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which clients are in a cluster where most clients have their concept: ``[m]``."""
    right = np.zeros(len(labels), dtype=bool)
    for members in Partition(labels):
        counts = np.bincount(concepts[members])
        alone = len(members) == 1 and (concepts == concepts[members[0]]).sum() > 1
        right[members] = (concepts[members] == counts.argmax()) & (not alone)
    return right


def outcome_of(result: Result, num_stages: int = 0) -> Outcome:
    """Return what a result means after its first stages, without fine-tuning."""
    steps = sum(stage.budget.local_steps for stage in result.history[num_stages:])
    rows = models_of_clients(result.models, result.labels)
    return Outcome(result.labels, rows, steps / len(result.labels))


class Adapted:
    """SR-FCA, fitted in the first phase and adapted in the others."""

    def __init__(self, local: LocalTraining, rounds: int, keep: int) -> None:
        self.local, self.rounds, self.keep = local, rounds, keep
        self.result: Result | None = None

    def train(self, federation: Simulation, phase: int, seed: int) -> Outcome:
        """Adapt to the data of a phase."""
        if self.result is None:
            self.result = SRFCA(local=self.local).fit(federation, seed)
            return outcome_of(self.result)
        num_stages = len(self.result.history)
        self.result = replace(self.result, individual_models=None)
        self.result = adapt(self.result, federation, self.local, self.rounds, keep=self.keep)
        return outcome_of(self.result, num_stages)


def fit_again(federation: Simulation, local: LocalTraining, seed: int) -> Outcome:
    """Fit SR-FCA from scratch."""
    return outcome_of(SRFCA(local=local).fit(federation, seed))


class ContinuedIFCA:
    """IFCA that starts each phase from all K models of the last one."""

    def __init__(self, k: int, local: LocalTraining, seed: int) -> None:
        self.k, self.local, self.seed = k, local, seed
        self.models: Tensor | None = None

    def train(self, federation: Simulation, phase: int, steps: int) -> Outcome:
        """Train through a phase."""
        run = Run(federation, self.seed)
        if self.models is None:
            self.models = random_models(run, self.k, "ifca start")
        local = replace(self.local, steps=steps)
        found = alternate(run, "IFCA", self.models, local, Mean(), purpose=f"ifca {phase}")
        self.models = found.models
        return Outcome(found.labels, found.client_models, steps)


class ContinuedFedDrift:
    """FedDrift whose clients drift if their loss rises from one phase to the next."""

    def __init__(self, delta: float, local: LocalTraining, seed: int) -> None:
        self.delta, self.local, self.seed = delta, local, seed
        self.answer: Answer | None = None
        self.losses = np.zeros(0)

    def train(self, federation: Simulation, phase: int, steps: int) -> Outcome:
        """Train through a phase."""
        run, local = Run(federation, self.seed), replace(self.local, steps=steps)
        method = FedDrift(delta=self.delta, time_steps=TIME_STEPS, local=local)
        if self.answer is None:
            answer = method.solve(run)
        else:
            alone, _ = method.train_alone(run)
            answer = method.train_clusters(run, self.answer, alone, self.losses, new_data=True)
        self.answer, rows = answer, models_of_clients(answer.models, answer.labels)
        scores = federation.ask(Scores(run.everyone, rows, "train")).values
        self.losses = scores.loss.double().numpy()
        return Outcome(answer.labels, rows, steps + method.alone_steps)


class Continued:
    """FedAvg in given groups that starts each phase from the groups' last models.

    A group that is new starts from the last model of its first client.

    Args:
        local: How clients train.
        seed: Seed of the draws.
        groups: ``[phases, m]`` the group of each client.
    """

    def __init__(self, local: LocalTraining, seed: int, groups: NDArray[np.int64]) -> None:
        self.local, self.seed, self.groups = local, seed, groups
        self.models: dict[int, Tensor] = {}

    def train(self, federation: Simulation, phase: int, steps: int) -> Outcome:
        """Train through a phase."""
        run, groups = Run(federation, self.seed), self.groups[phase]
        partition = Partition(groups)
        names = [int(groups[members[0]]) for members in partition]
        starts = torch.stack([self._start(run, phase, members) for members in partition])
        local = replace(self.local, steps=steps)
        purpose = f"continued {phase}"
        trained = federated_training(
            run, "FEDAVG", starts, partition, local, Mean(), purpose=purpose
        )
        self.models |= dict(zip(names, trained, strict=True))
        return Outcome(None, models_of_clients(trained, partition.labels), steps)

    def _start(self, run: Run, phase: int, members: Sequence[int] | NDArray[np.int64]) -> Tensor:
        first = members[0]
        if (group := int(self.groups[phase][first])) in self.models:
            return self.models[group]
        if phase:
            return self.models[int(self.groups[phase - 1][first])]
        return run.initial_model()


if __name__ == "__main__":
    main()
