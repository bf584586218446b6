"""What server and clients share: the model."""

from srfca import models

model = models.mlp(64, 32, 10)
