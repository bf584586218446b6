"""Runs on a Ray cluster: each is a task on a machine that has room for it."""

from __future__ import annotations

from collections.abc import Sequence

from srfca.experiments.executor import Executor, OnFinish, RunOutcome, RunSpec
from srfca.experiments.parallel import limited_threads
from srfca.ray import connect
from srfca.ray.tasks import run_tasks


def run_on_ray(
    executor: Executor,
    specs: Sequence[RunSpec],
    jobs: int,
    on_finish: OnFinish,
    threads: int | None = None,
    address: str | None = None,
) -> None:
    """Execute runs on a Ray cluster, each on one CPU, and one GPU if the cluster has any.

    A run whose process or machine is lost is started again, up to three times. Machines must have
    what runs read, and share the folder that they are saved in.

    Args:
        executor: A copy of it goes to each run.
        specs: What to run.
        jobs: The most runs at a time.
        on_finish: Called in this process with each run that has finished.
        threads: Threads of each run, and CPUs that it takes; None is one.
        address: Address of the cluster, as for ``srfca.ray.connect``.
    """
    connect(address)

    def work(spec: RunSpec) -> RunOutcome:
        return _execute(executor, spec, threads or 1)

    def finish(spec: RunSpec, outcome: RunOutcome | Exception) -> None:
        if isinstance(outcome, Exception):
            outcome = RunOutcome(spec, error=f"the run was lost: {outcome}")
        on_finish(outcome)

    device = getattr(executor, "device", "auto")
    run_tasks(work, specs, finish, jobs, threads or 1, allow_gpus=not device.startswith("cpu"))


def _execute(executor: Executor, spec: RunSpec, threads: int) -> RunOutcome:
    with limited_threads(threads):
        return executor.execute(spec)
