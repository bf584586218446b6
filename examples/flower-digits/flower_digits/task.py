"""What the server and the clients share: the model."""

from srfca import models

model = models.mlp(64, 32, 10)  # or any function that makes a torch.nn.Module
