"""Other names for settings, which errors turn into ours."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

SYNONYMS = {
    "batch": "batch_size",
    "batchsize": "batch_size",
    "beta": "trim",
    "client_fraction": "participation",
    "clip_norm": "clip",
    "clipping": "clip",
    "clusters": "k",
    "epochs": "steps",
    "eta": "lr",
    "finetune_steps": "fine_tune_steps",
    "fraction_fit": "participation",
    "hidden_layers": "hidden",
    "hidden_size": "hidden",
    "hidden_sizes": "hidden",
    "iterations": "steps",
    "l2": "weight_decay",
    "lambda": "threshold",
    "learning_rate": "lr",
    "learningrate": "lr",
    "local_epochs": "local_steps",
    "max_steps": "steps",
    "n_clients": "num_clients",
    "n_clusters": "k",
    "num_clusters": "k",
    "num_epochs": "steps",
    "num_rounds": "steps",
    "num_steps": "steps",
    "optim": "optimizer",
    "prox": "mu",
    "proximal_mu": "mu",
    "rounds": "steps",
    "sample_fraction": "participation",
    "wd": "weight_decay",
}
"""Our names by common other ones."""
OPTIONS = {
    "client": "--client",
    "data_dir": "--data-dir",
    "device": "--device",
    "folder": "--data-dir",
    "method": "--method",
    "model": "--model",
    "random_state": "--seed",
    "seed": "--seed",
    "target": "--target",
}
"""Options of the command line that are no settings."""
_EXPLANATIONS = {
    "epochs": "training is counted in steps, each of one batch",
    "local_epochs": "training is counted in steps, each of one batch",
    "num_epochs": "training is counted in steps, each of one batch",
    "num_rounds": "there are steps / local_steps rounds",
    "rounds": "there are steps / local_steps rounds",
}


def hint(name: str, choices: Collection[str], prefix: str = "") -> str:
    """Return what somebody may mean by the name of a setting that does not exist.

    Args:
        name: The name.
        choices: The settings that there are.
        prefix: What comes before a setting's name: its section and a dot.

    >>> hint("learning_rate", ["lr", "steps"])
    "did you mean 'lr'?"
    >>> hint("Learning-Rate", ["lr", "steps"])
    "did you mean 'lr'?"
    >>> hint("rounds", ["lr", "steps"])
    "did you mean 'steps'? (there are steps / local_steps rounds)"
    >>> hint("seed", ["lr", "steps"])
    'use --seed'
    """
    name = name.replace("-", "_")
    if name in OPTIONS and name not in choices:
        return f"use {OPTIONS[name]}"
    synonym = SYNONYMS.get(name.lower())
    closest = [synonym] if synonym in choices else get_close_matches(name, choices, 1, cutoff=0.5)
    if not closest:
        return f"choose from {', '.join(sorted(choices))}"
    explanation = f" ({_EXPLANATIONS[name]})" if synonym and name in _EXPLANATIONS else ""
    return f"did you mean {prefix + str(closest[0])!r}?{explanation}"
