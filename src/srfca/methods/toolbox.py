"""The pieces that methods are built from: participants, rounds, starts, held-out decisions."""

from srfca.methods._common.held_out import held_out_losses, held_out_scores, interchangeable
from srfca.methods._common.init import distant_models, drawn_models, random_models, starting_models
from srfca.methods._common.rounds import (
    LocalModels,
    argmin_loss,
    best_models,
    federated_training,
    num_participants,
    one_cluster,
    participants,
    train_locally,
    trained_part,
)

__all__ = [
    "LocalModels",
    "argmin_loss",
    "best_models",
    "distant_models",
    "drawn_models",
    "federated_training",
    "held_out_losses",
    "interchangeable",
    "num_participants",
    "one_cluster",
    "participants",
    "random_models",
    "starting_models",
    "train_locally",
    "trained_part",
    "held_out_scores",
]
