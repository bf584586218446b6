"""One federated round of 100 clients x 5 steps of SGD: srfca and the plain loop.

``round_flower.py`` and ``round_pfl.py`` do the same with Flower and pfl-research.
"""

from __future__ import annotations

import numpy as np
import torch
from harness import Contestant, serve
from plain import train
from setting import (
    ROUND_LR,
    ROUND_PURPOSE,
    Setting,
    best_threads,
    client_arrays,
    mlp,
    parse_setting,
    round_batches,
    thread_label,
    to_row,
    torch_threads,
)
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from srfca import ClientData, LocalTraining, Simulation
from srfca.aggregation import Mean
from srfca.federation import Round, ask
from srfca.random import Key


def contestants(setting: Setting) -> dict[str, Contestant]:
    """Return the contestants of this environment."""
    w0 = to_row(mlp(setting.hidden))
    x, y = client_arrays(setting)
    data = ClientData.from_arrays(list(zip(x, y, strict=True)))
    federation = Simulation(data, mlp(setting.hidden), device="cpu", validation=0.0)
    everyone, labels = np.arange(setting.num_clients), np.zeros(setting.num_clients, dtype=np.int64)
    local = LocalTraining(
        steps=1000 * setting.round_steps, local_steps=setting.round_steps,
        batch_size=setting.batch_size, lr=ROUND_LR,
    )  # fmt: skip

    def srfca() -> float:
        request = Round(everyone, w0.unsqueeze(0), labels, local, Key(0, ROUND_PURPOSE), Mean())
        models = ask(federation, request).values
        assert bool(torch.isfinite(models).all())
        return float((models[0] - w0).norm())

    index = round_batches(setting)
    module = mlp(setting.hidden)

    def loop(count: int) -> Tensor:
        total = torch.zeros_like(w0)
        for inputs, targets, samples in list(zip(x, y, index, strict=True))[:count]:
            vector_to_parameters(w0.clone(), module.parameters())
            optimizer = torch.optim.SGD(module.parameters(), lr=ROUND_LR)
            train(module, optimizer, zip(inputs[samples], targets[samples], strict=True))
            total += to_row(module)
        return total / count

    count = best_threads(lambda: loop(min(10, setting.num_clients)))

    def plain() -> float:
        with torch_threads(count):
            return float((loop(setting.num_clients) - w0).norm())

    return {"srfca": srfca, f"plain loop, {thread_label(count)}": plain}


if __name__ == "__main__":
    serve(contestants(parse_setting()))
