"""Your own clients and network: three groups of sensors with different curves.

python examples/own_data.py
"""

import numpy as np
from torch import nn

from srfca import SRFCA, ClientData, LocalTraining, Simulation

rng = np.random.default_rng(0)
curves = [np.sin, np.cos, np.abs]
sensors = {}
for number in range(24):
    x = rng.uniform(-3, 3, (40 + number, 1)).astype(np.float32)
    y = curves[number % 3](x[:, 0]) + 0.1 * rng.standard_normal(len(x))
    sensors[f"sensor-{number}"] = (x, y.astype(np.float32))


def network() -> nn.Module:
    """Return a small network; the seed decides its initial weights."""
    return nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))


federation = Simulation(ClientData.from_arrays(sensors), network)
local = LocalTraining(steps=300, batch_size=20, optimizer="adam", lr=0.01)
result = SRFCA(local=local).fit(federation, seed=0)
print(result.summary())
for name, label in zip(result.client_ids, result.labels, strict=True):
    print(f"{name:>10}: cluster {label}")
