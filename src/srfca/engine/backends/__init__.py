"""How gradients are computed, by kind of model."""
