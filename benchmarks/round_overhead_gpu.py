"""What a federated round costs on one CUDA GPU beside its local steps.

    python benchmarks/round_overhead_gpu.py             # rounds of 1, 2 and 10 local steps
    python benchmarks/round_overhead_gpu.py --profile   # and where the host spends its time

The setting is that of rotated CIFAR-10 with random images: ResNet9, 32 clients in 2 clusters, half
of which take part in a round, Adam, bf16. The times of rounds with 2 and 10 steps give the time of
a step and of what is left: ``round = overhead + steps * step``.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from srfca import ClientData, LocalTraining, Partition, Simulation, models
from srfca.methods import Oracle
from srfca.methods._common.monitor import Monitor, RoundEnd

CLIENTS, SAMPLES, BATCH = 32, 3125, 100


class RoundTimes(Monitor):
    """Notes when each round ends."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def round_end(self, end: RoundEnd) -> None:
        """Note the time, once the GPU is idle."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(perf_counter())


def make_federation(device: str, width: int, samples: int) -> Simulation:
    """Draw random images of random classes."""
    g = torch.Generator().manual_seed(0)
    arrays = [
        (torch.randn(samples, 3, 32, 32, generator=g), torch.randint(10, (samples,), generator=g))
        for _ in range(CLIENTS)
    ]
    data = ClientData.from_arrays(arrays, truth=Partition(np.arange(CLIENTS) % 2))
    return Simulation(
        data, models.ResNet9(width=width), augment="cifar", device=device, precision="bf16"
    )


def fit(federation: Simulation, local_steps: int, rounds: int) -> list[float]:
    """Return the seconds of each round but the first three."""
    local = LocalTraining(
        steps=local_steps * rounds, local_steps=local_steps, batch_size=BATCH, optimizer="adam",
        lr=0.001, schedule="linear",
    )  # fmt: skip
    times = RoundTimes()
    method = Oracle(truth=federation.data.truth, local=local, participation=0.5)
    method.fit(federation, seed=0, callbacks=times)
    return np.diff(times.ends)[2:].tolist()


def main() -> None:
    """Print the time of a round, of a step, and of what is left."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, on a CPU")
    arguments = parser.parse_args()
    federation = (
        make_federation("cpu", 4, 110) if arguments.quick else make_federation("cuda", 64, SAMPLES)
    )
    times = {}
    for local_steps in (1, 2, 10):
        times[local_steps] = 1000 * median(fit(federation, local_steps, arguments.rounds))
        print(f"a round of {local_steps:2} local steps: {times[local_steps]:7.2f} ms", flush=True)
    step = (times[10] - times[2]) / 8
    print(f"a step {step:.2f} ms, and a round {times[2] - 2 * step:.2f} ms beside its 2 steps")
    if arguments.profile:
        profiler = cProfile.Profile()
        profiler.runcall(fit, federation, 2, arguments.rounds)
        pstats.Stats(profiler).sort_stats("cumulative").print_stats("srfca|method|built-in", 45)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as traced:
            fit(federation, 2, 10)
        averages = traced.key_averages()
        print(averages.table(sort_by="self_cpu_time_total", row_limit=20, max_name_column_width=50))


if __name__ == "__main__":
    main()
