"""From a result and its clients to the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from srfca.analysis.analysis import Analysis, DecisionNotes
from srfca.analysis.client_scores import best_split
from srfca.analysis.confidence import measure_confidence
from srfca.analysis.describe_data import Names, describe_data, table_names
from srfca.analysis.differences import Differences
from srfca.analysis.evidence import Evidence, collect_evidence, shared_clusters
from srfca.analysis.layers import layer_differences
from srfca.analysis.reference import Reference, history_reference
from srfca.analysis.sample_inputs import sample_inputs as samples_of
from srfca.analysis.structure import Structure, from_distances, from_losses
from srfca.data.client_data import ClientData
from srfca.errors import InputError, require
from srfca.federation.protocol import Federation
from srfca.methods import Result

_SAMPLED_CLUSTERS = 24
"""Most clusters of which samples are kept."""


def analyze(
    result: Result,
    federation: Federation,
    *,
    reference: Reference | None = None,
    differences: bool = True,
    replicates: int = 100,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    input_shape: Sequence[int] | None = None,
    sample_inputs: int = 0,
) -> Analysis:
    """Say what a run found, how sure it is, what it gains, and what differs.

    Clients evaluate the clusters' models on their training and held-out data, resample these data,
    and report means, shares and covariances of losses; with ``differences`` also sums of their data
    by class. docs/answer.md says what each number means, and what clients reveal.

    Args:
        result: Result of the run.
        federation: The clients of the result.
        reference: What the answer is compared with (``train_reference``); None takes what the run
            itself has tried, if anything.
        differences: Ask for sums of the clients' data, to say what differs between clusters.
        replicates: How many times clients resample their data.
        feature_names: Names of the inputs, in order. None takes those of the table that the clients
            were made of, if they were (``Result.schema``), and shows means in its units.
        class_names: Names of the classes, in order; None takes those of the table.
        input_shape: The shape of an input, such as that of an image.
        sample_inputs: With ``differences``, keep this many training samples of each cluster, if
            inputs are images. Whoever gets the analysis sees them, and real clients never send
            any: this is for a ``Simulation`` alone.

    Returns:
        The answer: plain data, without models, and without samples unless they are asked for.

    Raises:
        InputError: If the clients are others than the result's, there are not as many names as
            features or classes, ``replicates`` is not positive, or samples are asked for where the
            clients' data are not on this machine.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.methods import OneShotKMeans
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation = Simulation(regressions, models.linear(5))
        >>> result = OneShotKMeans(k=2, local=LocalTraining(steps=20)).fit(federation)
        >>> answer = analyze(result, federation, replicates=10)
        >>> answer.clusters()["clients"], answer.confidence.memberships.shape
        ([4, 4], (8, 2))
        >>> [difference.cluster for difference in answer.differences.by_cluster]
        [0, 1]
        >>> answer.structure.source, len(answer.differences.layers), answer.reference
        ('losses', 1, None)
    """
    require(
        tuple(federation.client_ids) == result.client_ids,
        f"the federation has {len(federation.client_ids)} clients that are not the "
        f"{len(result.client_ids)} of the result: pass the federation that it was found in",
    )
    require(replicates >= 1, f"replicates must be at least 1, not {replicates}")
    data = _own_data(federation, sample_inputs)
    split = best_split(federation)
    fine_tuned = result.fine_tuned_models is not None
    analysis = Analysis(
        method=result.method,
        seed=result.seed,
        client_ids=result.client_ids,
        labels=np.asarray(result.labels, dtype=np.int64),
        clustered=result.clustered,
        split=split,
        scores=result.scores(federation, split, fine_tuned=fine_tuned),
        reference=reference if reference is not None else history_reference(result),
        decision=_decision(result),
    )
    clusters = shared_clusters(analysis.labels)
    if not result.clustered or not len(clusters):
        return analysis
    evidence = _evidence(result, federation, replicates)
    confidence = None
    if evidence is not None and len(clusters) > 1:
        confidence = measure_confidence(
            evidence, analysis.labels, result.client_ids, replicates, result.seed
        )
    described = None
    if differences and len(clusters) > 1:
        names = _names(result, feature_names, class_names, input_shape)
        described = _differences(result, federation, names)
        if data is not None and names.are_images:
            described = _with_samples(described, data, analysis.labels, sample_inputs)
    return Analysis(
        **{
            **vars(analysis),
            "confidence": confidence,
            "structure": _structure(result, evidence),
            "differences": described,
        }
    )


def _names(
    result: Result,
    feature_names: Sequence[str] | None,
    class_names: Sequence[str] | None,
    input_shape: Sequence[int] | None,
) -> Names:
    """Return the names that are given, and else those of the table that the result is of."""
    names = Names() if result.schema is None else table_names(result.schema)
    if feature_names is not None:
        names = replace(names, features=tuple(feature_names), units=(), shares=frozenset())
    if class_names is not None:
        names = replace(names, classes=tuple(class_names))
    return names if input_shape is None else replace(names, input_shape=tuple(input_shape))


def _evidence(result: Result, federation: Federation, replicates: int) -> Evidence | None:
    """Ask clients to compare the clusters' models; None without held-out data."""
    if "validation" not in federation.splits:
        return None
    return collect_evidence(federation, result.models, result.labels, replicates, result.seed)


def _structure(result: Result, evidence: Evidence | None) -> Structure | None:
    """Return silhouettes and outliers by the distances of the run, else by losses."""
    labels = np.asarray(result.labels, dtype=np.int64)
    matrices = (stage.distances for stage in reversed(result.history))
    distances = next((matrix for matrix in matrices if matrix is not None), None)
    if distances is not None:
        return from_distances(np.asarray(distances), labels, shared_clusters(labels))
    return None if evidence is None else from_losses(evidence, labels)


def _differences(result: Result, federation: Federation, names: Names) -> Differences:
    labels = np.asarray(result.labels, dtype=np.int64)
    clusters = shared_clusters(labels)
    models = result.models[torch.as_tensor(clusters, device=result.models.device)]
    titles = {} if result.architecture is None else result.architecture.layer_titles()
    slices = {titles.get(name, name): part for name, part in federation.layers.items()}
    layers = layer_differences(models, federation.initial_model(result.seed), slices)
    described = describe_data(federation, labels, clusters, names)
    return Differences(described, layers, names.input_shape)


def _own_data(federation: Federation, sample_inputs: int) -> ClientData | None:
    """Return the clients' data if samples are asked for, None if they are not."""
    require(sample_inputs >= 0, f"sample_inputs must be at least 0, not {sample_inputs}")
    if not sample_inputs:
        return None
    data = getattr(federation, "data", None)
    if not isinstance(data, ClientData):
        raise InputError(
            "sample_inputs shows samples of clients, which only a Simulation has: leave it out"
        )
    return data


def _with_samples(
    differences: Differences, data: ClientData, labels: NDArray[np.int64], count: int
) -> Differences:
    """Return the same differences with single inputs of each cluster."""
    first, rest = (
        differences.by_cluster[:_SAMPLED_CLUSTERS],
        differences.by_cluster[_SAMPLED_CLUSTERS:],
    )
    sampled = tuple(
        replace(part, sample_inputs=tuple(samples_of(data, labels, part.cluster, count)))
        for part in first
    )
    return replace(differences, by_cluster=(*sampled, *rest))


def _decision(result: Result) -> DecisionNotes | None:
    """Return what was decided on held-out data, as the history has it."""
    notes = next((s.notes for s in reversed(result.history) if "decision" in s.notes), None)
    if notes is None or "considered" not in notes:
        return None
    return DecisionNotes(
        str(notes["chosen"]),
        str(notes["variant"]),
        str(notes["decision"]),
        notes.get("warning"),
        notes.get("standard_errors"),
        tuple(dict(entry) for entry in notes["considered"]),
    )
