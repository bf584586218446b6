"""Methods under attack: what corrupt clients cost the honest ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch

from srfca.clustering import Partition
from srfca.data import flip_labels
from srfca.errors import InputError, describe
from srfca.experiments import runner, saved
from srfca.experiments.executor import (
    RunExecutor,
    RunOutcome,
    RunSpec,
    TitledMonitor,
    collected_warnings,
)
from srfca.experiments.experiment import Experiment
from srfca.experiments.metrics import Metrics, run_metrics
from srfca.experiments.stopwatch import Stopwatch
from srfca.federation import Split
from srfca.federation.middleware.attacks import (
    Attacked,
    LabelFlip,
    Placement,
    attack_named,
    draw_attackers,
)
from srfca.federation.replies import Clients

METHODS = ("sr-fca", "global", "ifca")
"""The methods that are attacked by default."""
CLEAN = "none"
"""The name of no attack."""


@dataclass(frozen=True)
class AttackedSpec(RunSpec):
    """A run under attack.

    Args:
        attack: Its name; ``none`` is the clean run.
        fraction: Fraction of the clients that are corrupt.
        placement: Where they are.
    """

    attack: str = CLEAN
    fraction: float = 0.2
    placement: Placement = "spread"

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.attack}"


@dataclass(frozen=True, kw_only=True)
class AttackedRun(runner.ScoredRun):
    """The result of a run under attack; scores are those of all clients.

    Args:
        attack: The name of the attack.
        attackers: ``[a]`` the corrupt clients.
    """

    attack: str
    attackers: Clients

    @property
    def metrics(self) -> Metrics:
        """The metrics of the run, with those of honest clients."""
        metrics = run_metrics(self)
        honest = np.setdiff1d(np.arange(len(self.result.client_ids)), self.attackers)
        index = torch.as_tensor(honest)
        accuracy, truth = self.scores.accuracy, self.federation.truth
        misplaced = None
        if self.result.clustered and truth is not None:
            misplaced = num_misplaced(self.result.partition, truth, honest)
        return metrics | {
            "attack": self.attack,
            "attackers": [self.result.client_ids[client] for client in self.attackers.tolist()],
            "honest": len(honest),
            "honest_accuracy": None if accuracy is None else float(accuracy[index].mean()),
            "honest_loss": float(self.scores.loss[index].mean()),
            "misplaced": misplaced,
        }


def num_misplaced(partition: Partition, truth: Partition, honest: Clients) -> int:
    """Return how many honest clients are not in the cluster that stands for their true one.

    >>> truth = Partition([0, 0, 0, 1, 1, 1])
    >>> num_misplaced(Partition([0, 0, 1, 1, 1, 1]), truth, np.array([0, 1, 3, 4, 5]))
    0
    """
    clusters, true = (Partition(p.labels[honest]) for p in (partition, truth))
    return round(clusters.misclustering(true) * len(honest))


def run_specs(
    experiment: Experiment,
    methods: Sequence[str],
    attacks: Sequence[str],
    seeds: Sequence[int] = (0,),
    fraction: float = 0.2,
    placement: Placement = "spread",
    trim: float | None = None,
) -> list[AttackedSpec]:
    """Return all runs, seed by seed, for each method a clean run first.

    Methods that need the number of clusters are given the true one.

    Args:
        experiment: What to run.
        methods: Keys of methods, or ``MODULE:CLASS``.
        attacks: Names of attacks.
        seeds: One run each.
        fraction: Fraction of the clients that are corrupt.
        placement: Where they are.
        trim: Trim of methods that trim; None is that of the experiment.

    Raises:
        InputError: If there is no such method or attack, or a value is not allowed.
    """
    for attack in attacks:
        attack_named(attack)
    draw_attackers(["0"], fraction)
    variants = []
    for key in dict.fromkeys(methods):
        settings: tuple[str, ...] = ()
        if trim is not None and "trim" in experiment.parameters(key):
            settings = (f"{key}.trim={trim}",)
        runner.make_method(experiment.set(settings), key)
        variants.append(AttackedSpec(key, 0, settings=settings))
    return [
        replace(variant, seed=seed, attack=attack, fraction=fraction, placement=placement)
        for seed, variant, attack in product(seeds, variants, dict.fromkeys([CLEAN, *attacks]))
    ]


@dataclass
class StressExecutor(RunExecutor):
    """Executes runs under attack."""

    def execute(self, spec: RunSpec) -> RunOutcome:
        """Run a method and save the run; errors are captured in the outcome."""
        assert isinstance(spec, AttackedSpec)
        experiment = self._experiment(spec)
        try:
            with collected_warnings() as messages:
                run = self._run(experiment, spec)
            if (out := self.folder_of(spec)) is not None:
                saved.save(run, experiment, out)
        except InputError as error:
            return RunOutcome(spec, error=str(error))
        except Exception as error:  # for example of a user's model or loss
            return RunOutcome(spec, error=describe(error))
        return RunOutcome(spec, run.metrics, warnings=tuple(messages))

    def for_worker(self) -> StressExecutor:
        """Return a copy for another process, without monitor."""
        return StressExecutor(self.experiment, self.device, self.folder, self.out)

    def _digest(self, spec: RunSpec) -> str:
        assert isinstance(spec, AttackedSpec)
        return saved.run_digest(self._experiment(spec), spec.method, spec.seed)

    def _experiment(self, spec: AttackedSpec) -> Experiment:
        """Return the experiment of a run; its fingerprint tells it from runs without attackers."""
        experiment = self.experiment.set(spec.settings)
        mark = f"{experiment.fingerprint} {spec.attack} {spec.fraction} {spec.placement}"
        return replace(experiment, fingerprint=mark.strip())

    def _run(self, experiment: Experiment, spec: AttackedSpec) -> AttackedRun:
        """Run a method on a federation with corrupt clients, and score it on true data."""
        federation = self._federation(spec.seed, self.monitor)
        data = federation.data
        groups = None if data.truth is None else data.truth.labels
        attackers = draw_attackers(
            data.client_ids, spec.fraction, spec.seed, groups, spec.placement
        )
        attacked = runner.private(experiment, federation, spec.seed)
        if spec.attack != CLEAN:
            attack = attack_named(spec.attack)
            if isinstance(attack, LabelFlip):
                poisoned = runner.make_federation(
                    self.experiment, spec.seed, self.device, self.folder,
                    change_data=lambda data: flip_labels(data, attackers),
                )  # fmt: skip
                attacked = runner.private(experiment, poisoned, spec.seed)
            attacked = Attacked(attacked, attack, attackers, spec.seed, groups)
        method = runner.make_method(experiment, spec.method, data.truth)
        monitor = None if self.monitor is None else TitledMonitor(self.monitor, str(spec))
        watch = Stopwatch()
        result = method.fit(attacked, seed=spec.seed, callbacks=monitor)
        elapsed = watch.read(federation.device)
        split: Split = "test" if "test" in federation.splits else "validation"
        scores = result.scores(federation, split)
        return AttackedRun(
            experiment.name, spec.method, result, federation, scores, None, split, elapsed,
            attack=spec.attack, attackers=attackers,
        )  # fmt: skip
