"""The simulation on a GPU against the one on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from srfca import SRFCA, Result, Simulation
from srfca.aggregation.rank_mean import rank_mean
from srfca.engine.augment import cifar
from srfca.federation import Coordinates, Descent, LocalTraining, Phase
from srfca.methods import FedEM
from srfca.models import ResNet9, linear, mlp
from srfca.random import Key, batches, client_words, streams
from srfca.testing import check_federation
from tests import examples
from tests.asking import losses, scores, train
from tests.engine.cases import CASES, TRAININGS

Model = Callable[[], nn.Module]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning"),  # torch's, of itself
]


def test_draws_are_those_of_the_cpu() -> None:
    words, sizes = client_words(["a", "b", "c"]), torch.tensor([70, 9, 33])
    key = Key(1, "gpu", 2)
    expected = batches(streams(key, words), sizes, 10, 40)
    on_gpu = batches(streams(key, words.cuda()), sizes.cuda(), 10, 40)
    assert torch.equal(on_gpu.cpu(), expected)


def test_augmentation_is_that_of_the_cpu() -> None:
    draws = streams(Key(1, "gpu"), client_words(["a", "b", "c"]))
    x = torch.randn(3, 5, 2, 9, 11, generator=torch.Generator().manual_seed(0))
    assert torch.equal(cifar(x.cuda(), draws.cuda()).cpu(), cifar(x, draws))


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("case", [case for case in CASES if case != "dropout"])
def test_training_and_scores_are_those_of_the_cpu(case: str, training: str) -> None:
    data, model = CASES[case]
    cpu, gpu = (Simulation(data, examples.doubled(model), device=d) for d in ("cpu", "cuda"))
    starts, local, key = cpu.initial_model(0).repeat(6, 1), TRAININGS[training], Key(0, "x")
    expected = train(cpu, range(6), starts, local, key)
    rows = train(gpu, range(6), starts.cuda(), local, key)
    torch.testing.assert_close(rows.cpu(), expected, rtol=1e-6, atol=1e-6)
    expected_losses = losses(cpu, range(6), expected)
    torch.testing.assert_close(
        losses(gpu, range(6), rows).cpu(), expected_losses, rtol=1e-6, atol=1e-7
    )
    expected_loss = scores(cpu, range(6), expected).loss
    torch.testing.assert_close(
        scores(gpu, range(6), rows).loss, expected_loss, rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("model", [mlp(6, 5, 3), examples.Frozen])
@pytest.mark.parametrize("training", ["sgd", "momentum", "adam", "cosine, mu, clip"])
def test_corrections_and_phases_are_those_of_the_cpu(model: Model, training: str) -> None:
    data = examples.classification([20, 9, 30, 12, 12, 15])
    cpu, gpu = (Simulation(data, examples.doubled(model), device=d) for d in ("cpu", "cuda"))
    starts, local = cpu.initial_model(0).repeat(6, 1), TRAININGS[training]
    first, *rest = cpu.layers
    phases = (
        Phase(Coordinates.of_layers(cpu.layers, rest), 2),
        Phase(Coordinates.of_layers(cpu.layers, [first])),
    )
    corrections = 0.1 * torch.randn(starts.shape, generator=torch.Generator().manual_seed(0))
    for on in ({"phases": phases}, {"corrections": corrections.double()}):
        expected = train(cpu, range(6), starts, local, Key(0, "x"), Descent(**on))
        moved = {name: v.cuda() if isinstance(v, torch.Tensor) else v for name, v in on.items()}
        rows = train(gpu, range(6), starts.cuda(), local, Key(0, "x"), Descent(**moved))  # type: ignore[arg-type]
        torch.testing.assert_close(rows.cpu(), expected, rtol=1e-6, atol=1e-6)


class ChannelsLast(nn.Module):
    """Its input, laid out with the channels last."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of the shape of ``x``."""
        return x.contiguous(memory_format=torch.channels_last)


def test_batch_norm_takes_channels_last_wherever_its_buffers_lie_in_a_row() -> None:
    data = examples.classification([20, 20], (3, 8, 8))
    model = nn.Sequential(
        ChannelsLast(), nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.Flatten(), nn.Linear(2304, 3)
    )
    fed = Simulation(data, model, device="cuda")
    local = LocalTraining(steps=2, batch_size=4, lr=0.01)
    rows = train(fed, range(2), fed.initial_model(0).repeat(2, 1), local, Key(0, "x"))
    assert bool(scores(fed, range(2), rows).loss.isfinite().all())


@pytest.mark.parametrize("options", [{}, {"exchange": "gradients"}, {"distance": "l2"}])
def test_sr_fca_is_that_of_the_cpu(options: dict[str, str]) -> None:
    data = examples.regression([20 + i % 3 for i in range(12)], clusters=3)
    local = LocalTraining(steps=30, local_steps=3, batch_size=10, lr=0.05)
    method = SRFCA(local=local, participation=0.5, **options)  # type: ignore[arg-type]
    model = examples.doubled(linear(4))
    cpu, gpu = (method.fit(Simulation(data, model, device=d), 1) for d in ("cpu", "cuda"))
    assert np.array_equal(cpu.labels, gpu.labels)
    torch.testing.assert_close(gpu.models.cpu(), cpu.models, rtol=1e-7, atol=1e-8)


def test_a_result_from_a_gpu_is_saved_and_assigns_clients(tmp_path: object) -> None:
    data = examples.regression([20] * 9, clusters=3)
    federation = Simulation(data, linear(4), device="cuda")
    local = LocalTraining(steps=30, local_steps=3, batch_size=10, lr=0.05)
    result = SRFCA(local=local).fit(federation)
    result.save(str(tmp_path))
    assert result.assign(federation).labels.tolist() == result.labels.tolist()


@pytest.mark.parametrize("recurrent", [False, True])
def test_models_from_a_gpu_predict_on_the_cpu(recurrent: bool, tmp_path: Path) -> None:
    """Also if the simulation has replaced recurrent layers by its own."""
    data = examples.characters([20] * 4) if recurrent else examples.classification([20] * 4)
    model = examples.Recurrent if recurrent else examples.Frozen
    federation = Simulation(data, model, device="cuda", precision="float32")
    result = FedEM(k=2, local=LocalTraining(steps=6, local_steps=3)).fit(federation)
    expected = result.scores(federation).loss
    assert data.test is not None
    for loaded in (result, Result.load(result.save(tmp_path))):
        for client in range(4):
            x, y = data.test.of(client)
            loss = cross_entropy(loaded.module(client)(x), y).mean()
            torch.testing.assert_close(loss.double(), expected[client], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("count", "length"), [(1, 5), (7, 33), (100, 4099), (300, 1000)])
def test_rank_means_are_those_of_the_cpu(count: int, length: int) -> None:
    g = torch.Generator().manual_seed(0)
    rows = torch.randn(count, length, generator=g)
    rows[torch.rand(rows.shape, generator=g) < 0.05] = torch.nan
    rows[torch.rand(rows.shape, generator=g) < 0.2] = 0.0
    low, high = count // 4, count - count // 4
    expected = rank_mean(rows, low, high)
    on_gpu = rank_mean(rows.cuda(), low, high)
    torch.testing.assert_close(on_gpu.cpu(), expected, equal_nan=True)
    one_block, blocks = (rank_mean(rows.cuda(), low, high, block=b) for b in (rows.shape[1], 17))
    torch.testing.assert_close(one_block.cpu(), expected, equal_nan=True)
    assert torch.equal(blocks.view(torch.int32), one_block.view(torch.int32))


@pytest.mark.filterwarnings("ignore")  # of the compiler, about itself
def test_compiled_training_agrees_with_the_layers() -> None:
    data = examples.classification([30, 30], (3, 16, 16))
    local = LocalTraining(steps=3, batch_size=10, lr=0.01)
    rows = []
    for compiled in (False, True):
        fed = Simulation(
            data, ResNet9(classes=3, width=8), device="cuda", precision="float32", compile=compiled
        )
        rows.append(train(fed, range(2), fed.initial_model(0).repeat(2, 1), local, Key(0, "x")))
    cpu = Simulation(data, ResNet9(classes=3, width=8), device="cpu")
    start = cpu.initial_model(0)
    expected = train(cpu, range(2), start.repeat(2, 1), local, Key(0, "x")).cuda()
    moved = float((expected - start.cuda()).norm())
    for trained in rows:
        assert float((trained - expected).norm()) < 0.01 * moved


def test_a_simulation_on_a_gpu_passes_the_checks() -> None:
    check_federation(
        lambda data, model: Simulation(data, model, device="cuda", precision="float32")
    )
