"""The answer of a run: analyzed, saved, and compared with other runs of the same clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from srfca.analysis import Analysis, Reference, analyze, train_reference
from srfca.analysis.client_scores import from_list
from srfca.experiments.experiment import Experiment
from srfca.experiments.metrics import Metrics
from srfca.experiments.runner import ScoredRun
from srfca.federation import ClientScores, LocalTraining
from srfca.methods import Monitor

SAMPLE_INPUTS = 6
"""Samples of each cluster that a report of a registered data set shows, if they are images."""
CLUSTERS_FILE = "clusters.csv"
REFERENCE_FOLDER = "reference"
"""In the folder of a comparison: runs of Global and Local that are not among its methods."""
TOGETHER, ALONE = "global", "local"
"""Keys of the methods that other methods are compared with."""


def analyze_run(
    run: ScoredRun,
    *,
    reference: LocalTraining | None = None,
    differences: bool = True,
    sample_inputs: int = 0,
    monitor: Monitor | None = None,
) -> Analysis:
    """Analyze a run.

    Args:
        run: The run.
        reference: Train one model for all and every client alone like this, to compare; None takes
            what the run itself has tried.
        differences: Say what differs between clusters.
        sample_inputs: Samples of each cluster to keep.
        monitor: Follows the training.
    """
    federation = run.federation
    trained = None
    if reference is not None:
        trained = train_reference(run.result, federation, reference, monitor)
    return analyze(
        run.result,
        federation,
        reference=trained,
        differences=differences,
        input_shape=federation.signature.input_shape,
        sample_inputs=sample_inputs,
    )


def num_samples(experiment: Experiment, requested: int | None) -> int:
    """Return how many samples of each cluster a report shows.

    Args:
        experiment: What is run.
        requested: How many; None is ``SAMPLE_INPUTS``, but 0 of a user's own data.
    """
    if requested is not None:
        return requested
    return SAMPLE_INPUTS if experiment.user_data is None else 0


def save_answer(analysis: Analysis, folder: Path) -> Path:
    """Write ``analysis.json`` and ``clusters.csv``, and return the path of the latter.

    Raises:
        InputError: If the folder cannot be written to.
    """
    analysis.save(folder)
    return analysis.to_csv(folder / CLUSTERS_FILE)


def compared(analysis: Analysis, metrics: Metrics, runs: Sequence[Metrics]) -> Analysis:
    """Return an analysis with what Global and Local have, if they are among the runs.

    Args:
        analysis: Analysis of one run.
        metrics: Metrics of the same run.
        runs: Metrics of all runs; those of the same experiment and seed count.
    """
    same = {
        run["method"]: run
        for run in runs
        if (run["experiment"], run["seed"], run["scored_on"])
        == (metrics["experiment"], metrics["seed"], analysis.split)
    }
    if metrics["method"] in (TOGETHER, ALONE) or not {TOGETHER, ALONE} & set(same):
        return analysis
    together, alone = (
        None if (run := same.get(key)) is None else _scores(run, analysis.scores)
        for key in (TOGETHER, ALONE)
    )
    return analysis.with_reference(Reference(analysis.split, analysis.scores, together, alone))


def _scores(run: Metrics, like: ClientScores) -> ClientScores:
    """Return the clients' scores that are saved with a run's metrics."""
    accuracy = run["client_accuracies"]
    return ClientScores(
        from_list(run["client_losses"]),
        None if accuracy is None else from_list(accuracy),
        like.num_samples,
    )
