"""Federations: requests, replies, and whoever answers them."""

from srfca.federation.algorithms import (
    Descent,
    LocalAlgorithm,
    LocalClient,
    Phase,
    Posterior,
    register_algorithm,
)
from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import LocalTraining
from srfca.federation.middleware import Budget, Counting, DropReplies, Journal, Middleware
from srfca.federation.mixture import Mixture
from srfca.federation.protocol import Federation
from srfca.federation.replies import ClientScores, Replies, Traffic
from srfca.federation.requests import (
    Collect,
    Gradients,
    Losses,
    Personal,
    Request,
    Round,
    Scores,
    Shares,
    Split,
    Subsample,
    Subspaces,
    Train,
)
from srfca.federation.rounds import ask, train_and_aggregate

__all__ = [
    "Budget",
    "ClientScores",
    "Collect",
    "Coordinates",
    "Counting",
    "Descent",
    "DropReplies",
    "Federation",
    "Gradients",
    "Journal",
    "LocalAlgorithm",
    "LocalClient",
    "LocalTraining",
    "Losses",
    "Middleware",
    "Mixture",
    "Personal",
    "Phase",
    "Posterior",
    "Replies",
    "Request",
    "Round",
    "Scores",
    "Shares",
    "Split",
    "Subsample",
    "Subspaces",
    "Traffic",
    "Train",
    "ask",
    "register_algorithm",
    "train_and_aggregate",
]
