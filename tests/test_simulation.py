"""The batched simulation against the plainest loop, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from srfca.data import ClientData
from srfca.errors import InputError
from srfca.federation import Focus, Mixture, Simulation, Work
from srfca.federation.recurrent import step_lstms
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.loop_federation import LoopFederation

UNEQUAL = [7, 30, 12, 12, 5, 21]

CASES: dict[str, tuple[ClientData, Callable[[], nn.Module]]] = {
    "linear": (examples.regression(UNEQUAL), linear(4)),
    "mlp": (examples.classification(UNEQUAL), mlp(6, 5, 3)),
    "summed": (examples.classification(UNEQUAL), examples.Summed),
    "frozen": (examples.classification(UNEQUAL), examples.Frozen),
    "cnn": (examples.classification(UNEQUAL, (1, 6, 6)), examples.convolutional),
    "batch norm": (examples.classification(UNEQUAL, (1, 6, 6)), examples.batch_normed),
    "cumulative batch norm": (examples.classification(UNEQUAL), examples.cumulative_batch_norm),
    "dropout": (examples.classification(UNEQUAL), examples.dropped_out),
    "lstm": (examples.characters(UNEQUAL), examples.Recurrent),
    "stepped lstm": (examples.characters(UNEQUAL), lambda: step_lstms(examples.Recurrent())),
}

WORKS = {
    "sgd": Work(steps=6, local_steps=6, batch_size=8, lr=0.1),
    "momentum": Work(steps=6, local_steps=6, batch_size=8, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": Work(steps=6, local_steps=6, batch_size=8, optimizer="adam", lr=0.01, weight_decay=0.1),
    "full batch": Work(steps=4, local_steps=4, batch_size=None, lr=0.1),
    "cosine, prox, clip": Work(
        steps=9, local_steps=6, batch_size=8, lr=0.3, schedule="cosine", prox=0.5, clip=0.2
    ),
    "resampled": Work(steps=5, local_steps=5, batch_size=8, lr=0.1, resample=True),
}


def pair(case: str, block_size: int | None) -> tuple[Simulation, LoopFederation]:
    data, model = CASES[case]
    double = examples.doubled(model)
    return Simulation(data, double, block_size=block_size), LoopFederation(data, double)


def starts_of(federation: LoopFederation, count: int) -> Tensor:
    """Different starts for different clients."""
    noise = torch.randn(count, federation.layout.length, generator=torch.Generator().manual_seed(1))
    return federation.initial(0) + 0.01 * noise.double().abs()


@pytest.mark.parametrize("block_size", [None, 1, 4])
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("case", CASES)
def test_fit_agrees_with_the_loop(case: str, work: str, block_size: int | None) -> None:
    simulation, loop = pair(case, block_size)
    clients = [4, 0, 1, 3, 5, 2]
    starts = starts_of(loop, 6)
    for number in range(WORKS[work].rounds):
        key = Key(3, "test", number)
        expected = loop.fit(starts, clients, WORKS[work], key)
        found = simulation.fit(starts, clients, WORKS[work], key)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
        assert not torch.equal(found, starts)


@pytest.mark.parametrize("case", CASES)
def test_losses_and_scores_agree_with_the_loop(case: str) -> None:
    simulation, loop = pair(case, None)
    models = starts_of(loop, 3)
    for split in ("train", "validation", "test"):
        torch.testing.assert_close(
            simulation.losses(models, [5, 0, 2, 1], split),
            loop.losses(models, [5, 0, 2, 1], split),
            rtol=1e-9, atol=1e-10,
        )  # fmt: skip
        found, expected = (f.scores(models, [5, 0, 2], split) for f in (simulation, loop))
        torch.testing.assert_close(found.loss, expected.loss, rtol=1e-9, atol=1e-10)
        assert torch.equal(found.n, expected.n)
        if expected.accuracy is None:
            assert found.accuracy is None
        else:
            torch.testing.assert_close(found.accuracy, expected.accuracy)


@pytest.mark.parametrize("case", ["linear", "mlp", "cnn", "lstm"])
@pytest.mark.parametrize("block_size", [None, 1, 4])
def test_gradients_agree_with_the_loop(case: str, block_size: int | None) -> None:
    simulation, loop = pair(case, block_size)
    at = starts_of(loop, 4)
    torch.testing.assert_close(
        simulation.gradients(at, [1, 5, 0, 2]), loop.gradients(at, [1, 5, 0, 2]),
        rtol=1e-9, atol=1e-10,
    )  # fmt: skip


@pytest.mark.parametrize("optimizer", [{"optimizer": "adam"}, {"momentum": 0.9}])
def test_kept_state_agrees_with_the_loop_when_clients_skip_rounds(
    optimizer: dict[str, object],
) -> None:
    simulation, loop = pair("mlp", None)
    work = Work(steps=9, local_steps=3, batch_size=8, lr=0.05, keep_state=True, **optimizer)  # type: ignore[arg-type]
    rows = loop.initial(0).repeat(6, 1)
    for number, clients in enumerate([[0, 1, 2, 3], [1, 4, 2], [0, 1, 4, 5]]):
        key = Key(0, "kept", number)
        expected = loop.fit(rows[clients], clients, work, key)
        found = simulation.fit(rows[clients], clients, work, key)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
        rows[clients] = expected
    fresh = simulation.fit(rows, range(6), work, Key(0, "another", 0))
    simulation.fit(rows, range(6), work, Key(0, "kept", 0))
    again = simulation.fit(rows, range(6), work, Key(0, "another", 0))
    assert torch.equal(fresh, again), "round 0 begins with no state"


def mixture_of(federation: LoopFederation, clients: int, components: int = 3) -> Mixture:
    """Models that differ, and other weights for each client; some of them are 0."""
    g = torch.Generator().manual_seed(4)
    models = torch.stack([federation.initial(seed) for seed in range(components)])
    models = models + 0.3 * torch.randn(models.shape, generator=g).double().abs()
    weights = torch.rand(clients, components, generator=g).double()
    weights[1, 0] = 0.0
    return Mixture(models, weights / weights.sum(1, keepdim=True))


@pytest.mark.parametrize("case", CASES)
def test_shares_and_mixtures_agree_with_the_loop(case: str) -> None:
    simulation, loop = pair(case, None)
    clients = [5, 0, 2, 1]
    mixture = mixture_of(loop, 4)
    for models in (mixture, mixture.models):
        found = simulation.shares(models, clients)
        torch.testing.assert_close(found, loop.shares(models, clients), rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(found.sum(1), torch.ones(4).double())
    for split in ("train", "validation", "test"):
        scores, expected = (f.scores(mixture, clients, split) for f in (simulation, loop))
        torch.testing.assert_close(scores.loss, expected.loss, rtol=1e-9, atol=1e-10)
        assert torch.equal(scores.n, expected.n)
        if expected.accuracy is None:
            assert scores.accuracy is None
        else:
            torch.testing.assert_close(scores.accuracy, expected.accuracy)


@pytest.mark.parametrize("block_size", [None, 1, 4])
@pytest.mark.parametrize("work", ["sgd", "adam", "resampled", "kept"])
@pytest.mark.parametrize("case", CASES)
def test_fit_with_a_focus_agrees_with_the_loop(
    case: str, work: str, block_size: int | None
) -> None:
    simulation, loop = pair(case, block_size)
    kept = Work(steps=6, local_steps=3, batch_size=8, lr=0.1, momentum=0.9, keep_state=True)
    how = WORKS.get(work, kept)
    clients = [4, 4, 0, 1, 1, 5]
    component = torch.tensor([0, 2, 1, 0, 1, 2])
    focus = Focus(mixture_of(loop, 6), component)
    found = expected = focus.mixture.models[component]
    for number in range(how.rounds):
        key = Key(3, "test", number)
        expected = loop.fit(expected, clients, how, key, focus=focus)
        found = simulation.fit(found, clients, how, key, focus=focus)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
    plain = simulation.fit(
        focus.mixture.models[component], clients, replace(how, keep_state=False), Key(3, "test")
    )
    assert not torch.allclose(found, plain)


def test_a_model_that_ties_takes_nothing_from_the_first() -> None:
    simulation, loop = pair("mlp", None)
    one = loop.initial(0)
    shares = simulation.shares(torch.stack([one, one]), [0, 1])
    assert shares.tolist() == [[1, 0], [1, 0]]


def test_a_mixture_that_does_not_fit_is_refused() -> None:
    simulation, loop = pair("mlp", None)
    mixture = mixture_of(loop, 3)
    with pytest.raises(InputError, match=r"weights of shape \(2, 3\), not \(3, 3\)"):
        simulation.scores(mixture, [0, 1])
    with pytest.raises(InputError, match="component must name one of 3 models"):
        simulation.fit(
            mixture.models, [0, 1, 2], Work(), Key(0, "x"),
            focus=Focus(mixture, torch.tensor([0, 1, 3])),
        )  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 17), min_size=1, max_size=7),
    batch=st.integers(1, 20),
    steps=st.integers(1, 5),
    block=st.integers(1, 8),
    seed=st.integers(0, 2**31),
)
def test_any_sizes_any_block(
    sizes: list[int], batch: int, steps: int, block: int, seed: int
) -> None:
    data = examples.classification(sizes)
    model = examples.doubled(mlp(6, 4, 3))
    simulation = Simulation(data, model, block_size=block)
    loop = LoopFederation(data, model)
    work = Work(steps=steps, local_steps=steps, batch_size=batch, lr=0.2)
    starts = starts_of(loop, len(sizes))
    key = Key(seed, "sizes")
    torch.testing.assert_close(
        simulation.fit(starts, range(len(sizes)), work, key),
        loop.fit(starts, range(len(sizes)), work, key),
        rtol=1e-9, atol=1e-10,
    )  # fmt: skip


def test_a_client_draws_the_same_whoever_else_takes_part() -> None:
    simulation, loop = pair("mlp", None)
    starts = starts_of(loop, 6)
    work = WORKS["sgd"]
    together = simulation.fit(starts, range(6), work, Key(0, "x", 0))
    alone = simulation.fit(starts[3:4], [3], work, Key(0, "x", 0))
    torch.testing.assert_close(together[3:4], alone, rtol=1e-12, atol=1e-12)
    other = simulation.fit(starts[3:4], [3], work, Key(0, "y", 0))
    assert not torch.allclose(alone, other)


def test_what_cannot_be_batched_says_why() -> None:
    assert pair("mlp", None)[0].traits.batchable
    assert "lstm" in pair("lstm", None)[0].traits.why_not
    assert pair("stepped lstm", None)[0].traits.together
    assert "random" in pair("dropout", None)[0].traits.why_not
    assert "one by one" in repr(pair("dropout", None)[0])


def test_batch_norm_is_seen() -> None:
    traits = pair("batch norm", None)[0].traits
    assert traits.mixes_samples
    assert traits.updates_buffers
    assert not pair("cnn", None)[0].traits.mixes_samples


class ZeroHead(nn.Module):
    """Dropout that does not show in the outputs of its start."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(functional.dropout(self.first(x), 0.5, self.training)))


def test_dropout_is_seen_where_it_does_not_show() -> None:
    simulation = Simulation(examples.classification(UNEQUAL), ZeroHead)
    assert simulation.traits.random
    starts = simulation.initial(0).repeat(6, 1)
    one, other = (simulation.fit(starts, range(6), WORKS["sgd"], Key(0, "x")) for _ in range(2))
    assert torch.equal(one, other)
    with pytest.raises(InputError, match="draws random numbers"):
        simulation.gradients(starts, range(6))


class Centred(nn.Module):
    """In training, its inputs less the mean of the batch: samples mix, and there are no buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(x - x.mean(0) if self.training else x))


def test_gradients_where_samples_mix_agree_with_the_loop() -> None:
    data, double = examples.classification(UNEQUAL), examples.doubled(Centred)
    simulation, loop = Simulation(data, double), LoopFederation(data, double)
    assert simulation.traits.mixes_samples
    starts = starts_of(loop, 6)
    found, expected = (f.gradients(starts, range(6)) for f in (simulation, loop))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_a_module_that_mixes_samples_when_it_is_evaluated_is_refused() -> None:
    normed = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, track_running_stats=False))
    with pytest.raises(InputError, match="must keep running statistics"):
        Simulation(examples.classification(UNEQUAL), normed)


@pytest.mark.parametrize("shape", [(-1, 1), (-1,)])
def test_a_single_logit_names_one_of_two_classes(shape: tuple[int, ...]) -> None:
    def binary(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            outputs.flatten(), targets.to(outputs.dtype), reduction="none"
        )

    made = examples.classification([40, 40])
    parts = [(x, (x[:, 0] > 0).long()) for x, _ in (made.train.of(c) for c in range(2))]
    net = nn.Sequential(nn.Linear(6, 1), nn.Identity() if len(shape) == 2 else Flat())
    simulation = Simulation(ClientData.from_arrays(parts, parts), net, loss=binary)
    row = torch.tensor([3.0, 0, 0, 0, 0, 0, 0]).repeat(2, 1)
    assert simulation.scores(row, range(2)).accuracy.tolist() == [1.0, 1.0]  # type: ignore[union-attr]
    assert simulation.scores(-row, range(2)).accuracy.tolist() == [0.0, 0.0]  # type: ignore[union-attr]


class Flat(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.squeeze(1)


def test_several_labels_of_a_sample_count_by_their_share() -> None:
    def binary(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            outputs, targets.to(outputs.dtype), reduction="none"
        ).mean(1)

    x = torch.randn(12, 4)
    parts = [(x, (x > 0).long())]
    simulation = Simulation(ClientData.from_arrays(parts, parts), nn.Linear(4, 4, bias=False), loss=binary)
    row = torch.eye(4)
    assert simulation.scores(row.flatten().unsqueeze(0), [0]).accuracy == 1.0
    row[0, 0] = -1.0
    assert simulation.scores(row.flatten().unsqueeze(0), [0]).accuracy == 0.75


def test_a_factory_may_return_the_same_module_every_time() -> None:
    net = nn.Linear(6, 3)
    before = net.weight.detach().clone()
    simulation = Simulation(examples.classification(UNEQUAL), lambda: net)
    simulation.module(torch.zeros_like(simulation.initial(0)))
    assert torch.equal(net.weight, before)


def test_gradients_refuse_batch_norm() -> None:
    simulation, loop = pair("batch norm", None)
    with pytest.raises(InputError, match="buffers"):
        simulation.gradients(starts_of(loop, 2), [0, 1])


def test_a_callable_loss_and_a_module_as_start() -> None:
    def absolute(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.squeeze(1) - targets).abs()

    torch.manual_seed(5)
    start = nn.Linear(4, 1)
    data = examples.regression(UNEQUAL)
    simulation = Simulation(data, start, loss=absolute)
    assert torch.equal(simulation.initial(0), simulation.initial(7))
    row = simulation.initial(0)
    x, y = data.test.of(2)  # type: ignore[union-attr]
    expected = absolute(start(x), y).mean().item()
    assert simulation.scores(row.unsqueeze(0), [2]).loss.item() == pytest.approx(expected, rel=1e-5)
    again = simulation.module(row)
    assert torch.equal(again(x), start(x))


def test_the_seed_decides_the_start() -> None:
    simulation = pair("mlp", None)[0]
    assert torch.equal(simulation.initial(1), simulation.initial(1))
    assert not torch.equal(simulation.initial(1), simulation.initial(2))


def test_validation_is_a_tenth_and_apart() -> None:
    data = examples.classification([30, 10, 2])
    simulation = Simulation(data, mlp(6, 4, 3))
    assert simulation.sizes.tolist() == [27, 9, 1]
    every = simulation._samples
    for client in range(3):
        x, _ = data.train.of(client)
        kept, held = every["train"].of(client)[0], every["validation"].of(client)[0]
        together = torch.cat([kept, held])
        assert sorted(map(tuple, together.tolist())) == sorted(map(tuple, x.tolist()))
    other = Simulation(data, mlp(6, 4, 3), seed=1)
    assert not torch.equal(other._samples["validation"].x, every["validation"].x)
    whole = Simulation(data, mlp(6, 4, 3), validation=0)
    assert whole.sizes.tolist() == [30, 10, 2]
    assert "validation" not in whole.splits


def test_bad_input_is_named() -> None:
    data = examples.classification([5, 6])
    with pytest.raises(InputError, match="does not take samples of shape"):
        Simulation(data, mlp(7, 3))
    with pytest.raises(InputError, match=r"client '0' has the label 2.*classes 0 to 1"):
        Simulation(data, mlp(6, 2))
    with pytest.raises(InputError, match=r"loss 'cross_entrophy'.*'cross_entropy'"):
        Simulation(data, mlp(6, 3), loss="cross_entrophy")
    with pytest.raises(InputError, match="integer labels"):
        Simulation(examples.regression([5]), linear(4), loss="cross_entropy")
    with pytest.raises(InputError, match="device 'gpu'"):
        Simulation(data, mlp(6, 3), device="gpu")
    with pytest.raises(InputError, match="block_size"):
        Simulation(data, mlp(6, 3), block_size=0)
    with pytest.raises(InputError, match="validation must be in"):
        Simulation(data, mlp(6, 3), validation=1.0)
    with pytest.raises(InputError, match="one value for each"):
        Simulation(data, mlp(6, 3), loss=lambda outputs, targets: outputs.mean())

    class TwoInputs(nn.Linear):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x * mask)

    with pytest.raises(InputError, match=r"does not take samples.*TypeError"):
        Simulation(data, TwoInputs(6, 3))
    with pytest.raises(InputError, match="no parameters"):
        Simulation(data, nn.Flatten())
    simulation = Simulation(data, mlp(6, 3))
    with pytest.raises(InputError, match="rows of shape"):
        simulation.fit(torch.zeros(1, 3), [0], Work(), Key(0, "x"))
    with pytest.raises(InputError, match="numbered 0 to 1"):
        simulation.losses(simulation.initial(0).unsqueeze(0), [2])
    bare = Simulation(ClientData.from_arrays([data.train.of(0)]), mlp(6, 3))
    with pytest.raises(InputError, match="no test data"):
        bare.scores(bare.initial(0).unsqueeze(0), [0])
    with pytest.raises(InputError, match=r"'1' has one training sample"):
        Simulation(examples.classification([5, 1]), mlp(6, 3))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0), ("local_steps", 0), ("batch_size", 0), ("optimizer", "adamm"), ("lr", 0.0),
        ("momentum", 1.0), ("weight_decay", -1.0), ("prox", -1.0), ("clip", 0.0),
        ("schedule", "cosinus"),
    ],
)  # fmt: skip
def test_work_refuses(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        Work(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="momentum"):
        Work(optimizer="adam", momentum=0.5)


def test_schedules() -> None:
    assert [Work(steps=4, lr=1.0, schedule="linear").rate(s) for s in range(4)] == [
        1,
        0.75,
        0.5,
        0.25,
    ]
    step = Work(steps=4, lr=1.0, schedule="step")
    assert [step.rate(s) for s in range(4)] == pytest.approx([1, 1, 0.1, 0.01])
    work = Work(steps=7, local_steps=3)
    assert [list(work.span(r)) for r in range(work.rounds)] == [[0, 1, 2], [3, 4, 5], [6]]
