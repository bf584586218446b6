"""The simulation on a GPU against the one on a CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from srfca import SRFCA, Simulation, Work
from srfca.federation.augment import cifar
from srfca.models import ResNet9, linear
from srfca.random import Key, batches, client_words, streams
from srfca.aggregation.rank_mean import rank_mean
from tests import examples
from tests.test_simulation import CASES, WORKS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning"),  # torch's, of itself
]


def test_draws_are_those_of_the_cpu() -> None:
    words, sizes = client_words(["a", "b", "c"]), torch.tensor([70, 9, 33])
    key = Key(1, "gpu", 2)
    expected = batches(streams(key, words), sizes, 10, 40)
    found = batches(streams(key, words.cuda()), sizes.cuda(), 10, 40)
    assert torch.equal(found.cpu(), expected)


def test_augmentation_is_that_of_the_cpu() -> None:
    own = streams(Key(1, "gpu"), client_words(["a", "b", "c"]))
    x = torch.randn(3, 5, 2, 9, 11, generator=torch.Generator().manual_seed(0))
    assert torch.equal(cifar(x.cuda(), own.cuda()).cpu(), cifar(x, own))


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("case", [case for case in CASES if case != "dropout"])
def test_fit_and_scores_are_those_of_the_cpu(case: str, work: str) -> None:
    data, model = CASES[case]
    cpu, gpu = (Simulation(data, examples.doubled(model), device=d) for d in ("cpu", "cuda"))
    starts = cpu.initial(0).repeat(6, 1)
    expected = cpu.fit(starts, range(6), WORKS[work], Key(0, "x"))
    found = gpu.fit(starts.cuda(), range(6), WORKS[work], Key(0, "x"))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        gpu.losses(found, range(6)).cpu(), cpu.losses(expected, range(6)), rtol=1e-6, atol=1e-7
    )
    scores = gpu.scores(found, range(6)).loss
    torch.testing.assert_close(scores, cpu.scores(expected, range(6)).loss, rtol=1e-6, atol=1e-7)


class ChannelsLast(nn.Module):
    """Its input, laid out with the channels last."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of the shape of ``x``."""
        return x.contiguous(memory_format=torch.channels_last)


def test_batch_norm_takes_channels_last_whatever_lies_before_its_buffers_in_a_row() -> None:
    data = examples.classification([20, 20], (3, 8, 8))
    model = nn.Sequential(
        ChannelsLast(), nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.Flatten(), nn.Linear(2304, 3)
    )
    fed = Simulation(data, model, device="cuda")
    work = Work(steps=2, batch_size=4, lr=0.01)
    rows = fed.fit(fed.initial(0).repeat(2, 1), range(2), work, Key(0, "x"))
    assert bool(fed.scores(rows, range(2)).loss.isfinite().all())


@pytest.mark.parametrize("options", [{}, {"aggregate": "gradients"}, {"distance": "l2"}])
def test_sr_fca_is_that_of_the_cpu(options: dict[str, str]) -> None:
    data = examples.regression([20 + i % 3 for i in range(12)], clusters=3)
    work = Work(steps=30, local_steps=3, batch_size=10, lr=0.05)
    method = SRFCA(work=work, participation=0.5, **options)  # type: ignore[arg-type]
    model = examples.doubled(linear(4))
    cpu, gpu = (method.fit(Simulation(data, model, device=d), 1) for d in ("cpu", "cuda"))
    assert np.array_equal(cpu.labels, gpu.labels)
    torch.testing.assert_close(gpu.models.cpu(), cpu.models, rtol=1e-7, atol=1e-8)


def test_a_result_from_a_gpu_is_saved_and_assigns(tmp_path: object) -> None:
    data = examples.regression([20] * 9, clusters=3)
    federation = Simulation(data, linear(4), device="cuda")
    work = Work(steps=30, local_steps=3, batch_size=10, lr=0.05)
    result = SRFCA(work=work).fit(federation)
    result.save(str(tmp_path))
    assert result.assign(federation).labels.tolist() == result.labels.tolist()


@pytest.mark.parametrize(("count", "length"), [(1, 5), (7, 33), (100, 4099), (300, 1000)])
def test_ranks_are_those_of_the_cpu(count: int, length: int) -> None:
    g = torch.Generator().manual_seed(0)
    rows = torch.randn(count, length, generator=g)
    rows[torch.rand(rows.shape, generator=g) < 0.05] = torch.nan
    rows[torch.rand(rows.shape, generator=g) < 0.2] = 0.0
    low, high = count // 4, count - count // 4
    expected = rank_mean(rows, low, high)
    found = rank_mean(rows.cuda(), low, high)
    torch.testing.assert_close(found.cpu(), expected, equal_nan=True)
    whole, blocks = (rank_mean(rows.cuda(), low, high, block=b) for b in (rows.shape[1], 17))
    torch.testing.assert_close(whole.cpu(), expected, equal_nan=True)
    assert torch.equal(blocks.view(torch.int32), whole.view(torch.int32))


@pytest.mark.filterwarnings("ignore")  # of the compiler, about itself
def test_compiled_training_is_that_of_the_layers() -> None:
    data = examples.classification([30, 30], (3, 16, 16))
    work = Work(steps=3, batch_size=10, lr=0.01)
    rows = []
    for compiled in (False, True):
        fed = Simulation(
            data, ResNet9(classes=3, width=8), device="cuda", precision="float32", compile=compiled
        )
        rows.append(fed.fit(fed.initial(0).repeat(2, 1), range(2), work, Key(0, "x")))
    cpu = Simulation(data, ResNet9(classes=3, width=8), device="cpu")
    rows.append(cpu.fit(cpu.initial(0).repeat(2, 1), range(2), work, Key(0, "x")).cuda())
    start = cpu.initial(0).cuda()
    for found in rows[:2]:
        assert float((found - rows[2]).norm()) < 0.01 * float((rows[2] - start).norm())
