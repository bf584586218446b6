"""Federations: requests, replies, and the holders of the data that answer them."""

from srfca.federation.accountant import PrivacySpent
from srfca.federation.algorithms import (
    Descent,
    LocalAlgorithm,
    LocalClient,
    Phase,
    Posterior,
    register_algorithm,
)
from srfca.federation.classes import class_shares, num_classes
from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import LocalTraining
from srfca.federation.middleware import (
    Budget,
    Counting,
    DropReplies,
    Journal,
    Middleware,
    Private,
    Subset,
)
from srfca.federation.mixture import Mixture
from srfca.federation.privacy import Privacy
from srfca.federation.protocol import Federation
from srfca.federation.replies import ClientScores, Replies, Traffic
from srfca.federation.requests import (
    BalancedLosses,
    BootstrapLosses,
    ClassCounts,
    Collect,
    DataMoments,
    Gradients,
    Losses,
    LossMoments,
    OutputMoments,
    Outputs,
    Personal,
    Request,
    Round,
    Scores,
    SharedSamples,
    Shares,
    Split,
    Subsample,
    Subspaces,
    Train,
)
from srfca.federation.rounds import ask, train_and_aggregate

__all__ = [
    "BalancedLosses",
    "BootstrapLosses",
    "Budget",
    "ClassCounts",
    "ClientScores",
    "Collect",
    "Coordinates",
    "Counting",
    "DataMoments",
    "Descent",
    "DropReplies",
    "Federation",
    "Gradients",
    "Journal",
    "LocalAlgorithm",
    "LocalClient",
    "LocalTraining",
    "LossMoments",
    "Losses",
    "Middleware",
    "Mixture",
    "OutputMoments",
    "Outputs",
    "Personal",
    "Phase",
    "Posterior",
    "Privacy",
    "PrivacySpent",
    "Private",
    "Replies",
    "Request",
    "Round",
    "Scores",
    "SharedSamples",
    "Shares",
    "Split",
    "Subsample",
    "Subset",
    "Subspaces",
    "Traffic",
    "Train",
    "ask",
    "class_shares",
    "num_classes",
    "register_algorithm",
    "train_and_aggregate",
]
