"""The model, which the server and the clients share."""

from srfca import models

model = models.mlp(64, 32, 10)  # or any function that returns a torch.nn.Module
