"""Benchmarks on one CUDA GPU, relative to the measured rates of that GPU.

    python benchmarks/gpu.py                     # all but rotated CIFAR-10
    python benchmarks/gpu.py --cifar             # that too: whole SR-FCA with ResNet9
    python benchmarks/gpu.py --only trimmed_mean
    python benchmarks/gpu.py --device cpu --quick    # tiny sizes, to check that everything runs

Needs only srfca, and MNIST and CIFAR-10 if they are found (``SRFCA_DATA``); random images replace
them otherwise. If a part fails, the error is reported and the other parts still run. No part starts
after ``--seconds``.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from harness import format_number
from setting import FULL, GROUPS, QUICK, Setting, client_arrays, mlp
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from srfca import ClientData, InputError, LocalTraining, Partition, Simulation, models
from srfca.aggregation import trim_count, trimmed_mean
from srfca.aggregation.rank_mean import rank_mean
from srfca.experiments import config, runner
from srfca.federation import Losses, Train
from srfca.random import Key

KEY = Key(0, "benchmark")


@dataclass(frozen=True)
class Measurement:
    """Times of one operation, with the FLOPs that it needs and the bytes that it must move."""

    name: str
    seconds: tuple[float, ...]
    target: float | None = None
    flops: float = 0.0
    bytes: float = 0.0
    note: str = ""

    @property
    def median(self) -> float:
        """The median of all runs."""
        return median(self.seconds)


@dataclass
class Card:
    """A GPU, and the rates that were measured on it."""

    device: torch.device
    quick: bool
    rates: dict[str, float] = field(default_factory=dict)
    """FLOP/s by number format."""
    bandwidth: float = 0.0
    """Bytes read and written per second."""

    @property
    def setting(self) -> Setting:
        """The sizes of the benchmarks."""
        return QUICK if self.quick else FULL

    def synchronize(self) -> None:
        """Wait until the GPU is idle."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def time(
        self, function: Callable[[], object], repeats: int = 5, warm_up: int = 2
    ) -> tuple[float, ...]:
        """Return the seconds of each run, after some runs to warm up."""
        seconds = []
        for turn in range(repeats + warm_up):
            self.synchronize()
            start = perf_counter()
            function()
            self.synchronize()
            if turn >= warm_up:
                seconds.append(perf_counter() - start)
        return tuple(seconds)


def rates(card: Card) -> Iterator[Measurement]:
    """Measure the rates of a large matrix product and a large copy."""
    size = 128 if card.quick else 8192
    formats = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
    before = torch.get_float32_matmul_precision()
    for name, dtype in formats.items():
        a, b = (torch.randn(size, size, device=card.device).to(dtype) for _ in range(2))
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        seconds = card.time(partial(torch.mm, a, b))
        torch.set_float32_matmul_precision(before)
        product = Measurement(f"matrix product {size}, {name}", seconds, flops=2 * size**3)
        card.rates[name] = product.flops / product.median
        yield product
    source = torch.empty(2**16 if card.quick else 2**29, device=card.device)
    target = torch.empty_like(source)
    moved = 2.0 * source.numel() * source.element_size()
    copy = Measurement("copy", card.time(lambda: target.copy_(source)), bytes=moved)
    card.bandwidth = moved / copy.median
    yield copy


def image_clients(card: Card) -> ClientData:
    """Return clients with images of MNIST's shape, in four groups."""
    x, y = client_arrays(card.setting)
    truth = Partition(np.arange(card.setting.num_clients) % GROUPS)
    return ClientData.from_arrays(list(zip(x, y, strict=True)), truth=truth)


def small_models(card: Card) -> Iterator[Measurement]:
    """Measure the local training of 100 MLPs, and all of their losses."""
    setting = card.setting
    steps = setting.local_steps if card.quick else 250
    module = mlp(setting.hidden)
    federation = Simulation(image_clients(card), module, device=card.device, validation=0.0)
    clients = range(setting.num_clients)
    starts = federation.initial_model(0).repeat(setting.num_clients, 1)
    flops = step_flops(module, torch.zeros(setting.batch_size, 784))
    for name, target in (("adam", 0.08), ("sgd", None)):
        local = LocalTraining(
            steps=steps, local_steps=steps, batch_size=setting.batch_size, optimizer=name, lr=0.001
        )
        request = Train(clients, starts, local, KEY)
        passes = 9 if name == "adam" else 5  # over weights, gradients and the optimizer's moments
        yield Measurement(
            f"{setting.num_clients} MLP clients x {steps} steps, {name}",
            card.time(partial(federation.ask, request)),
            target,
            flops=setting.num_clients * steps * flops,
            bytes=passes * steps * starts.numel() * starts.element_size(),
        )
    trained = federation.ask(request).values
    pairs = setting.num_clients**2
    yield Measurement(
        f"all {pairs:,} losses",
        card.time(lambda: federation.ask(Losses(clients, trained))),
        0.02,
        flops=pairs * setting.num_samples * 2 * (784 * setting.hidden + setting.hidden * 10),
    )


def step_flops(module: nn.Module, x: Tensor) -> float:
    """Count the FLOPs of products and convolutions in one step, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        module(x).sum().backward()
    module.zero_grad(set_to_none=True)
    return float(counter.get_total_flops())


def aggregation(card: Card) -> Iterator[Measurement]:
    """Measure the trimmed mean of 100 rows, the same by torch's sort, and their plain mean."""
    setting = card.setting
    rows = torch.randn(setting.num_rows, setting.row_length, device=card.device)
    name = f"trimmed mean, {setting.num_rows} rows of {setting.row_length:,}"
    size = float(rows.numel() * rows.element_size())
    dropped = trim_count(len(rows), 0.1)

    def sort() -> Tensor:
        return rank_mean(rows, dropped, len(rows) - dropped, block=2**20)

    difference = float((sort() - trimmed_mean(rows, 0.1)).abs().max())
    note = f"differs from a sort by at most {difference:.1e}"
    yield Measurement(name, card.time(lambda: trimmed_mean(rows, 0.1)), bytes=size, note=note)
    yield Measurement(f"{name}, sorted by torch", card.time(sort, 3, 1), bytes=size)
    yield Measurement("plain mean of these rows", card.time(lambda: rows.mean(0)), bytes=size)


def whole_sr_fca(
    card: Card,
    preset: str,
    target: float,
    random_federation: Callable[[], Simulation],
    runs: int,
    settings: Sequence[str] = (),
) -> Iterator[Measurement]:
    """Measure SR-FCA with a preset, from data on the device to the result."""
    experiment, name = config.load(preset).set(settings), preset
    try:
        if card.quick:
            raise InputError("tiny sizes")
        federation = runner.make_federation(experiment, 0, str(card.device))
    except InputError as error:
        federation, name = random_federation(), f"{preset} with random images: {error}"
    if card.quick:
        experiment = experiment.set(["steps=20", "batch_size=10"])
    method = runner.make_method(experiment, "sr-fca")
    truth = federation.data.truth
    assert truth is not None
    for run in range(1, runs + 1):
        card.synchronize()
        start = perf_counter()
        result = method.fit(federation, seed=0)
        card.synchronize()
        seconds = perf_counter() - start
        misclustering = result.partition.misclustering(truth)
        split = "test" if "test" in federation.splits else "validation"
        accuracy = result.scores(federation, split).accuracy
        assert accuracy is not None
        stages = ", ".join(f"{stage.name} {stage.seconds:.2f} s" for stage in result.history)
        note = (
            f"{misclustering:.1%} misclustered, "
            f"{split} accuracy {float(accuracy.mean()):.2%}; {stages}"
        )
        yield Measurement(f"SR-FCA, {name}, run {run}", (seconds,), target, note=note)


def mnist(card: Card) -> Iterator[Measurement]:
    """Measure SR-FCA on rotated MNIST."""

    def random_federation() -> Simulation:
        return Simulation(image_clients(card), mlp(card.setting.hidden), device=card.device)

    yield from whole_sr_fca(card, "rotated-mnist", 2.0, random_federation, runs=3)


def random_data(
    num_clients: int, num_samples: int, shape: tuple[int, ...], symbols: int = 0
) -> ClientData:
    """Draw random images, or texts of this many symbols, of random classes."""
    g = torch.Generator().manual_seed(0)

    def draw() -> tuple[Tensor, Tensor]:
        if symbols:
            x = torch.randint(symbols, (num_samples, *shape), generator=g)
            return x, torch.randint(symbols, (num_samples,), generator=g)
        x = torch.randn(num_samples, *shape, generator=g)
        return x, torch.randint(10, (num_samples,), generator=g)

    truth = Partition(np.arange(num_clients) % 2)
    return ClientData.from_arrays([draw() for _ in range(num_clients)], truth=truth)


def measure_step(
    card: Card,
    name: str,
    data: ClientData,
    module: nn.Module,
    batch_size: int,
    flops: float,
    target: float | None = None,
    **options: Any,
) -> Measurement:
    """Measure one step of all clients with Adam."""
    federation = Simulation(data, module, device=card.device, validation=0.0, **options)
    num_clients, steps = len(data), 2 if card.quick else 20
    starts = federation.initial_model(0).repeat(num_clients, 1)
    local = LocalTraining(
        steps=steps, local_steps=steps, batch_size=batch_size, optimizer="adam", lr=0.001
    )
    request = Train(range(num_clients), starts, local, KEY)
    seconds = card.time(lambda: federation.ask(request), 3, 1)
    return Measurement(
        f"{name}: a step of {num_clients} clients, batch {batch_size}",
        tuple(total / steps for total in seconds),
        target,
        flops=num_clients * flops,
        note=f"mean over {steps} steps of one request; {federation!r}",
    )


def resnet9(card: Card) -> Iterator[Measurement]:
    """Measure ResNet9, 32 clients."""
    count, samples, batch_size, width = (2, 8, 4, 4) if card.quick else (32, 300, 100, 64)
    data = random_data(count, samples, (3, 32, 32))
    module = models.ResNet9(width=width)()
    flops = step_flops(module, data.train.x[:batch_size])
    variants: list[dict[str, Any]] = [{"precision": "bf16"}]
    if card.device.type == "cuda":
        variants = [{}, *variants, {"precision": "bf16", "compile": True}]
    for options in variants:
        name = ", ".join(["ResNet9", *(f"{option}={value}" for option, value in options.items())])
        yield measure_step(card, name, data, module, batch_size, flops, 0.027, **options)
        if card.device.type == "cuda":
            with patch("srfca.models.norm_relu._HAS_TRITON", False):
                separate = f"{name}, norm, ReLU and pool separate"
                yield measure_step(card, separate, data, module, batch_size, flops, **options)


def lstm(card: Card) -> Iterator[Measurement]:
    """Measure the LSTM of Shakespeare, 50 clients."""
    count, samples, batch_size, hidden = (2, 8, 4, 8) if card.quick else (50, 300, 50, 256)
    data = random_data(count, samples, (80,), symbols=80)
    gates = (8 + hidden) * 4 * hidden + 2 * hidden * 4 * hidden  # of the two layers
    flops = 3 * 2.0 * batch_size * 80 * gates
    yield measure_step(card, "LSTM", data, models.LSTM(hidden=hidden)(), batch_size, flops)


def cifar(card: Card) -> Iterator[Measurement]:
    """Measure SR-FCA on rotated CIFAR-10."""

    def random_federation() -> Simulation:
        count, samples, width = (4, 40, 4) if card.quick else (32, 3125, 64)
        data = random_data(count, samples, (3, 32, 32))
        return Simulation(data, models.ResNet9(width=width), augment="cifar", device=card.device)

    on_gpu = card.device.type == "cuda"
    settings = ["federation.precision=bf16", "federation.compile=true"] if on_gpu else []
    yield from whole_sr_fca(card, "rotated-cifar10", 180.0, random_federation, 1, settings)


PARTS = {
    "rates": rates,
    "small_models": small_models,
    "trimmed_mean": aggregation,
    "mnist": mnist,
    "resnet9": resnet9,
    "lstm": lstm,
    "cifar": cifar,
}


def table_line(card: Card, measurement: Measurement) -> str:
    """Return a measurement as a line of a Markdown table."""
    low, high = min(measurement.seconds), max(measurement.seconds)
    cells = [
        measurement.name,
        format_number(measurement.median),
        f"{format_number(low)} to {format_number(high)}",
        "" if measurement.target is None else f"{measurement.target:g}",
    ]
    rate = measurement.flops / measurement.median
    cells.append(f"{rate / 1e12:.3g}" if measurement.flops else "")
    formats = ("fp32", "tf32", "bf16")
    comparable = measurement.flops and all(name in card.rates for name in formats)
    fractions = (f"{rate / card.rates[name]:.0%}" for name in formats) if comparable else ()
    cells.append(" / ".join(fractions))
    speed = measurement.bytes / measurement.median
    cells.append(f"{speed / 1e9:.0f}" if measurement.bytes else "")
    cells.append(f"{speed / card.bandwidth:.0%}" if measurement.bytes and card.bandwidth else "")
    cells.append(measurement.note)
    return f"| {' | '.join(cells)} |"


HEADERS = (
    "", "median, s", "min to max, s", "target, s", "TFLOP/s", "of fp32 / tf32 / bf16", "GB/s",
    "of copy", "",
)  # fmt: skip


def main() -> None:
    """Run the parts, print a table, and write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(PARTS), help="some of the parts")
    parser.add_argument("--cifar", action="store_true", help="also run SR-FCA on CIFAR-10")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--seconds", type=float, default=540, help="start no part after this time")
    parser.add_argument("--out", type=Path, help="also write the page to this file")
    arguments = parser.parse_args()
    card = Card(torch.device(arguments.device), arguments.quick)
    device_name = str(card.device)
    if card.device.type == "cuda":
        if not torch.cuda.is_available():
            parser.error("there is no CUDA device; try --device cpu --quick")
        device_name = torch.cuda.get_device_name(card.device)
    command = " ".join(["python benchmarks/gpu.py", *sys.argv[1:]])
    lines = [f"# {device_name}", "", f"`{command}`, torch {torch.__version__}", ""]
    lines += [f"| {' | '.join(HEADERS)} |", "|---" * len(HEADERS) + "|"]
    print("\n".join(lines), flush=True)
    chosen = arguments.only or [part for part in PARTS if part != "cifar" or arguments.cifar]
    start, failures = perf_counter(), []
    for part in ["rates", *(part for part in chosen if part != "rates")]:
        if perf_counter() - start > arguments.seconds:
            failures.append(f"{part}: not started after {arguments.seconds:.0f} s")
            continue
        try:
            for measurement in PARTS[part](card):
                lines.append(table_line(card, measurement))
                print(lines[-1], flush=True)
        except Exception as error:
            traceback.print_exc()
            failures.append(f"{part}: {type(error).__name__}: {error}")
    lines += [f"\n{failure}" for failure in failures]
    print("\n".join(f"\n{failure}" for failure in failures))
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
