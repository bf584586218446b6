"""The answer of a run: what was found, how sure it is, what it gains, and what differs.

``analyze(result, federation)`` returns an ``Analysis``: plain data, without models, and without
samples unless they are asked for. It
is saved as ``analysis.json`` (``Analysis.save``, ``Analysis.load``), so that a report can be made
later without the clients.

An ``Analysis`` holds, for m clients and the q clusters of at least two clients:

- ``labels`` ``[m]``, ``client_ids``, ``method``, ``seed``, ``clustered``;
- ``scores``: a ``ClientScores`` of the model that the result gives each client, on ``split``;
- ``confidence``: a ``Confidence``, None unless there are two clusters and held-out data. By client:
  ``confidence``, ``margin``, ``standard_errors``, ``next_cluster``, ``stays``, ``memberships``
  ``[m, q]``; by cluster: ``clusters`` ``[q]`` (their labels) and ``stability`` ``[q]``;
- ``structure``: a ``Structure``, None without clusters of two clients. By client: ``silhouette``
  and ``outlier_score``, from distances between local models or from losses (``source``), and
  with losses ``places`` ``[m, 2]``, a map;
- ``reference``: a ``Reference``, None if unknown: scores of the answer, of one model for all
  (``together``) and of training alone (``alone``), all on ``Reference.split``;
- ``decision``: a ``DecisionNotes``, None if the method decided nothing on held-out data;
- ``differences``: a ``Differences``, None if it was not asked for: ``by_cluster``, a
  ``ClusterDifference`` each, and ``layers``.

Numbers by client are numpy arrays in which NaN means that a number does not apply;
``analysis.json`` has null there. ``Analysis.verdict`` is ``clusters``, ``together`` (one cluster),
``alone`` (every client alone) or ``none`` (a method without clusters). ``Analysis.table()`` and
``Analysis.clusters()`` return columns, as dicts of lists.
"""

from srfca.analysis.analysis import Analysis, DecisionNotes, Verdict
from srfca.analysis.analyze import analyze
from srfca.analysis.confidence import Confidence
from srfca.analysis.differences import (
    ClusterDifference,
    Differences,
    FeatureDifference,
    SampleInput,
)
from srfca.analysis.gains import Fairness, Gain
from srfca.analysis.layers import LayerDifference
from srfca.analysis.reference import Reference, train_reference
from srfca.analysis.structure import Structure

__all__ = [
    "Analysis",
    "ClusterDifference",
    "Confidence",
    "DecisionNotes",
    "Differences",
    "Fairness",
    "FeatureDifference",
    "Gain",
    "LayerDifference",
    "Reference",
    "SampleInput",
    "Structure",
    "Verdict",
    "analyze",
    "train_reference",
]
