"""The benchmarks of one CUDA card, against the rates that the card is measured to have.

    python benchmarks/gpu.py                     # all but rotated CIFAR-10
    python benchmarks/gpu.py --cifar             # that too: whole SR-FCA with ResNet9
    python benchmarks/gpu.py --only trimmed_mean
    python benchmarks/gpu.py --device cpu --quick    # a tiny setting, to see that all of it runs

Needs nothing but srfca; MNIST and CIFAR-10 where they are found (``SRFCA_DATA``). A part that fails
says so, and the others go on; ``--seconds`` is when no further part is begun.
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
from harness import figure
from setting import FULL, QUICK, Setting, clients, mlp
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from srfca import ClientData, InputError, Partition, Simulation, Work, models
from srfca.aggregation import trim_count, trimmed_mean
from srfca.experiments import config, runner
from srfca.random import Key
from srfca.aggregation.rank_mean import rank_mean

KEY = Key(0, "benchmark")


@dataclass(frozen=True)
class Row:
    """A line of the table: what took how long, and what it moved and multiplied meanwhile."""

    what: str
    seconds: tuple[float, ...]
    target: float | None = None
    flops: float = 0.0
    bytes: float = 0.0
    note: str = ""

    @property
    def median(self) -> float:
        """Of all runs."""
        return median(self.seconds)


@dataclass
class Card:
    """A device, and the rates that were measured on it."""

    device: torch.device
    quick: bool
    rates: dict[str, float] = field(default_factory=dict)
    """FLOP/s by number format."""
    bandwidth: float = 0.0
    """Bytes a second, read and written."""

    @property
    def sizes(self) -> Setting:
        """Of the clients."""
        return QUICK if self.quick else FULL

    def wait(self) -> None:
        """Until all is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def time(self, work: Callable[[], object], repeats: int = 5, warm_up: int = 2) -> tuple:
        """Seconds of each run, after some to warm up."""
        taken = []
        for turn in range(repeats + warm_up):
            self.wait()
            start = perf_counter()
            work()
            self.wait()
            if turn >= warm_up:
                taken.append(perf_counter() - start)
        return tuple(taken)


def rates(card: Card) -> Iterator[Row]:
    """What a large matrix product and a large copy reach."""
    size = 128 if card.quick else 8192
    formats = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
    before = torch.get_float32_matmul_precision()
    for name, dtype in formats.items():
        a, b = (torch.randn(size, size, device=card.device).to(dtype) for _ in range(2))
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        taken = card.time(partial(torch.mm, a, b))
        torch.set_float32_matmul_precision(before)
        row = Row(f"matrix product {size}, {name}", taken, flops=2 * size**3)
        card.rates[name] = row.flops / row.median
        yield row
    source = torch.empty(2**16 if card.quick else 2**29, device=card.device)
    target = torch.empty_like(source)
    moved = 2.0 * source.numel() * source.element_size()
    row = Row("copy", card.time(lambda: target.copy_(source)), bytes=moved)
    card.bandwidth = moved / row.median
    yield row


def image_clients(card: Card) -> ClientData:
    """Images of MNIST's shape, in four groups."""
    x, y = clients(card.sizes)
    truth = Partition(np.arange(card.sizes.clients) % 4)
    return ClientData.from_arrays(list(zip(x, y, strict=True)), truth=truth)


def small_models(card: Card) -> Iterator[Row]:
    """Local training of 100 MLPs, and all of their losses."""
    sizes = card.sizes
    steps = sizes.local_steps if card.quick else 250
    module = mlp(sizes.hidden)
    federation = Simulation(image_clients(card), module, device=card.device, validation=0.0)
    every = range(sizes.clients)
    starts = federation.initial(0).repeat(sizes.clients, 1)
    for name, target in (("adam", 0.08), ("sgd", None)):
        work = Work(
            steps=steps, local_steps=steps, batch_size=sizes.batch, optimizer=name, lr=0.001
        )
        passes = 9 if name == "adam" else 5  # w; gradient out; and what the optimiser reads, writes
        yield Row(
            f"{sizes.clients} MLP clients x {steps} steps, {name}",
            card.time(partial(federation.fit, starts, every, work, KEY)),
            target,
            flops=sizes.clients * steps * step_flops(module, torch.zeros(sizes.batch, 784)),
            bytes=passes * steps * starts.numel() * starts.element_size(),
        )
    trained = federation.fit(starts, every, work, KEY)
    pairs = sizes.clients**2
    yield Row(
        f"all {pairs:,} losses",
        card.time(lambda: federation.losses(trained, every)),
        0.02,
        flops=pairs * sizes.samples * 2 * (784 * sizes.hidden + sizes.hidden * 10),
    )


def step_flops(module: nn.Module, x: Tensor) -> float:
    """Of the products and convolutions of one step, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        module(x).sum().backward()
    module.zero_grad(set_to_none=True)
    return float(counter.get_total_flops())


def aggregation(card: Card) -> Iterator[Row]:
    """Trimmed mean of 100 rows, also by torch's sort, and their plain mean."""
    sizes = card.sizes
    rows = torch.randn(sizes.rows, sizes.length, device=card.device)
    what = f"trimmed mean, {sizes.rows} rows of {sizes.length:,}"
    read = float(rows.numel() * rows.element_size())
    drop = trim_count(len(rows), 0.1)

    def sort() -> Tensor:
        return rank_mean(rows, drop, len(rows) - drop, block=2**20)

    wrong = float((sort() - trimmed_mean(rows, 0.1)).abs().max())
    note = f"differs from a sort by at most {wrong:.1e}"
    yield Row(what, card.time(lambda: trimmed_mean(rows, 0.1)), bytes=read, note=note)
    yield Row(f"{what}, sorted by torch", card.time(sort, 3, 1), bytes=read)
    yield Row("plain mean of them", card.time(lambda: rows.mean(0)), bytes=read)


def whole(
    card: Card,
    name: str,
    target: float,
    turned: Callable[[], Simulation],
    runs: int,
    settings: Sequence[str] = (),
) -> Iterator[Row]:
    """Whole SR-FCA as a preset has it, from data on the device to the result."""
    experiment, what = config.load(name).set(settings), name
    try:
        if card.quick:
            raise InputError("a tiny setting")
        federation = runner.federation(experiment, 0, str(card.device))
    except InputError as error:
        federation, what = turned(), f"{name} with random images: {error}"
    if card.quick:
        experiment = experiment.set(["work.steps=20", "work.batch_size=10"])
    method = runner.method(experiment, "sr-fca")
    truth = federation.data.truth
    assert truth is not None
    for run in range(1, runs + 1):
        card.wait()
        start = perf_counter()
        result = method.fit(federation, seed=0)
        card.wait()
        taken = perf_counter() - start
        wrong = result.partition.misclustering(truth)
        split = "test" if "test" in federation.splits else "validation"
        accuracy = result.scores(federation, split).accuracy
        assert accuracy is not None
        stages = ", ".join(f"{stage.name} {stage.seconds:.2f} s" for stage in result.history)
        note = f"{wrong:.1%} misplaced, {split} accuracy {float(accuracy.mean()):.2%}; {stages}"
        yield Row(f"SR-FCA, {what}, run {run}", (taken,), target, note=note)


def mnist(card: Card) -> Iterator[Row]:
    """Whole SR-FCA on rotated MNIST."""

    def turned() -> Simulation:
        return Simulation(image_clients(card), mlp(card.sizes.hidden), device=card.device)

    yield from whole(card, "rotated-mnist", 2.0, turned, runs=3)


def random_clients(count: int, samples: int, shape: tuple[int, ...], symbols: int) -> ClientData:
    """Random images, or symbols if there are any, of random classes."""
    g = torch.Generator().manual_seed(0)

    def draw() -> tuple[Tensor, Tensor]:
        if symbols:
            x = torch.randint(symbols, (samples, *shape), generator=g)
            return x, torch.randint(symbols, (samples,), generator=g)
        x = torch.randn(samples, *shape, generator=g)
        return x, torch.randint(10, (samples,), generator=g)

    truth = Partition(np.arange(count) % 2)
    return ClientData.from_arrays([draw() for _ in range(count)], truth=truth)


def steps_of(
    card: Card,
    what: str,
    data: ClientData,
    module: nn.Module,
    batch: int,
    flops: float,
    target: float | None = None,
    **options: Any,
) -> Row:
    """A step of all clients with a model that is not dense, with Adam."""
    federation = Simulation(data, module, device=card.device, validation=0.0, **options)
    count, steps = len(data.client_ids), 2 if card.quick else 20
    starts = federation.initial(0).repeat(count, 1)
    work = Work(steps=steps, local_steps=steps, batch_size=batch, optimizer="adam", lr=0.001)
    taken = card.time(lambda: federation.fit(starts, range(count), work, KEY), 3, 1)
    return Row(
        f"{what}: a step of {count} clients, batch {batch}",
        tuple(seconds / steps for seconds in taken),
        target,
        flops=count * flops,
        note=f"mean over {steps} steps of one call; {federation!r}",
    )


def resnet9(card: Card) -> Iterator[Row]:
    """ResNet9, 32 clients."""
    count, samples, batch, width = (2, 8, 4, 4) if card.quick else (32, 300, 100, 64)
    data = random_clients(count, samples, (3, 32, 32), 0)
    module = models.ResNet9(width=width)()
    flops = step_flops(module, data.train.x[:batch])
    ways: list[dict[str, Any]] = [{"precision": "bf16"}]
    if card.device.type == "cuda":
        ways = [{}, *ways, {"precision": "bf16", "compile": True}]
    for way in ways:
        what = ", ".join(["ResNet9", *(f"{name}={value}" for name, value in way.items())])
        yield steps_of(card, what, data, module, batch, flops, 0.027, **way)
        if card.device.type == "cuda":
            with patch("srfca.models.norm_relu._FUSES", False):
                apart = f"{what}, norm, ReLU and pool apart"
                yield steps_of(card, apart, data, module, batch, flops, **way)


def lstm(card: Card) -> Iterator[Row]:
    """The LSTM of Shakespeare, 50 clients."""
    count, samples, batch, hidden = (2, 8, 4, 8) if card.quick else (50, 300, 50, 256)
    data = random_clients(count, samples, (80,), 80)
    gates = (8 + hidden) * 4 * hidden + 2 * hidden * 4 * hidden  # of the two layers
    flops = 3 * 2.0 * batch * 80 * gates
    yield steps_of(card, "LSTM", data, models.LSTM(hidden=hidden)(), batch, flops)


def cifar(card: Card) -> Iterator[Row]:
    """Whole SR-FCA on rotated CIFAR-10."""

    def turned() -> Simulation:
        count, samples, width = (4, 40, 4) if card.quick else (32, 3125, 64)
        data = random_clients(count, samples, (3, 32, 32), 0)
        return Simulation(data, models.ResNet9(width=width), augment="cifar", device=card.device)

    fast = ["federation.precision=bf16", "federation.compile=true"]
    on_gpu = card.device.type == "cuda"
    yield from whole(card, "rotated-cifar10", 180.0, turned, 1, fast if on_gpu else [])


PARTS = {
    "rates": rates,
    "small_models": small_models,
    "trimmed_mean": aggregation,
    "mnist": mnist,
    "resnet9": resnet9,
    "lstm": lstm,
    "cifar": cifar,
}


def line(card: Card, row: Row) -> str:
    """A row of the table."""
    cells = [
        row.what,
        figure(row.median),
        f"{figure(min(row.seconds))} to {figure(max(row.seconds))}",
    ]
    cells.append("" if row.target is None else f"{row.target:g}")
    rate = row.flops / row.median
    cells.append(f"{rate / 1e12:.3g}" if row.flops else "")
    formats = ("fp32", "tf32", "bf16")
    known = row.flops and all(name in card.rates for name in formats)
    shares = (f"{rate / card.rates[name]:.0%}" for name in formats) if known else ()
    cells.append(" / ".join(shares))
    speed = row.bytes / row.median
    cells.append(f"{speed / 1e9:.0f}" if row.bytes else "")
    cells.append(f"{speed / card.bandwidth:.0%}" if row.bytes and card.bandwidth else "")
    cells.append(row.note)
    return f"| {' | '.join(cells)} |"


HEADS = (
    "", "median, s", "least to most, s", "target, s", "TFLOP/s", "of fp32 / tf32 / bf16", "GB/s",
    "of copy", "",
)  # fmt: skip


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(PARTS), help="some of the parts")
    parser.add_argument("--cifar", action="store_true", help="whole SR-FCA on CIFAR-10 too")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--seconds", type=float, default=540, help="begin no part after so long")
    parser.add_argument("--out", type=Path, help="where to write the page")
    arguments = parser.parse_args()
    card = Card(torch.device(arguments.device), arguments.quick)
    machine = str(card.device)
    if card.device.type == "cuda":
        if not torch.cuda.is_available():
            parser.error("there is no CUDA device here; try --device cpu --quick")
        machine = torch.cuda.get_device_name(card.device)
    command = " ".join(["python benchmarks/gpu.py", *sys.argv[1:]])
    lines = [f"# {machine}", "", f"`{command}`, torch {torch.__version__}", ""]
    lines += [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    print("\n".join(lines), flush=True)
    chosen = arguments.only or [part for part in PARTS if part != "cifar" or arguments.cifar]
    wanted = ["rates", *(part for part in chosen if part != "rates")]
    began, failed = perf_counter(), []
    for part in wanted:
        if perf_counter() - began > arguments.seconds:
            failed.append(f"{part}: not begun after {arguments.seconds:.0f} s")
            continue
        try:
            for row in PARTS[part](card):
                lines.append(line(card, row))
                print(lines[-1], flush=True)
        except Exception as error:
            traceback.print_exc()
            failed.append(f"{part}: {type(error).__name__}: {error}")
    lines += [f"\n{why}" for why in failed]
    print("\n".join(f"\n{why}" for why in failed))
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
