"""What a run takes: time, and processor time."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter, process_time

import torch


@dataclass(frozen=True)
class Elapsed:
    """The time of a run.

    Args:
        seconds: By the clock.
        cpu_seconds: Processor time of this process, all of its threads together. What workers on
            other machines or in other processes take does not count.
        gpu_seconds: How long a GPU was held; None without one.
    """

    seconds: float
    cpu_seconds: float
    gpu_seconds: float | None = None


class Stopwatch:
    """Measure the time since it was made.

    Examples:
        >>> watch = Stopwatch()
        >>> elapsed = watch.read(torch.device("cpu"))
        >>> elapsed.seconds >= 0, elapsed.cpu_seconds >= 0, elapsed.gpu_seconds
        (True, True, None)
    """

    def __init__(self) -> None:
        self._start, self._cpu_start = perf_counter(), process_time()

    def read(self, device: torch.device | str) -> Elapsed:
        """Return the time since the start.

        Args:
            device: Where clients train.
        """
        seconds = perf_counter() - self._start
        on_gpu = torch.device(device).type == "cuda"
        cpu_seconds = process_time() - self._cpu_start
        return Elapsed(seconds, cpu_seconds, seconds if on_gpu else None)
