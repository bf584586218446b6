"""Rows: what is trained of a module, and its frozen part."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from srfca import InputError
from srfca.models import CNN, LSTM, ResNet9, frozen_digest, frozen_names, mlp, set_training
from srfca.models.rows import Layout, as_slice, make_module

STATISTICS = ("running_mean", "running_var")


class Normalize(nn.Module):
    """Standardizes its input by constants: buffers without parameters."""

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale


class Tied(nn.Module):
    """Two layers that share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.second(self.first(x)))


def backbone() -> nn.Sequential:
    return nn.Sequential(Normalize(3), nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())


def with_head(freeze: bool = True) -> nn.Sequential:
    """A backbone with a trained head and a trained BatchNorm without parameters."""
    module = nn.Sequential(backbone(), nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False))
    if freeze:
        module[0].requires_grad_(False)
    return module


BATCH_NORMED = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
TRAINED: list[Callable[[], nn.Module]] = [
    mlp(4, 3, 2),
    CNN(classes=3, size=8, hidden=4),
    ResNet9(width=2),
    LSTM(hidden=4),
    lambda: deepcopy(BATCH_NORMED),
    lambda: with_head(freeze=False),
    lambda: nn.Sequential(Normalize(3)),
    Tied,
]


@pytest.mark.parametrize("model", TRAINED)
def test_without_frozen_parameters_the_row_is_all_floating_point_state(
    model: Callable[[], nn.Module],
) -> None:
    module = model()
    entries = [*module.named_parameters(), *module.named_buffers()]
    state = {name: t for name, t in entries if t.is_floating_point()}
    layout = Layout.of(module)
    assert list(layout.shapes) == list(state)
    assert layout.shapes == {name: t.shape for name, t in state.items()}
    assert layout.parameters == tuple(name for name, _ in module.named_parameters())
    assert torch.equal(layout.row(module), torch.cat([t.flatten() for t in state.values()]))
    assert frozen_names(module) == ()
    assert frozen_digest(module) == ""


def test_a_frozen_parameter_is_not_in_the_row() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    module[0].weight.requires_grad_(False)
    layout = Layout.of(module)
    assert list(layout.shapes) == ["0.bias", "1.weight", "1.bias"]
    assert layout.parameters == ("0.bias", "1.weight", "1.bias")
    assert layout.length == 2 + 2 + 1
    assert layout.layers == {"0": slice(0, 2), "1": slice(2, 5)}
    assert frozen_names(module) == ("0.weight",)


def test_a_frozen_backbone_is_not_in_the_row() -> None:
    """Its BatchNorm's statistics and constants are frozen; those of the head are not."""
    module = with_head()
    assert list(Layout.of(module).shapes) == [
        "1.weight",
        "1.bias",
        *(f"2.{name}" for name in STATISTICS),
    ]
    assert frozen_names(module) == (
        *("0.1.weight", "0.1.bias", "0.2.weight", "0.2.bias"),
        *("0.0.mean", "0.0.scale", "0.2.running_mean", "0.2.running_var"),
    )


def test_a_partly_frozen_batch_norm_keeps_its_statistics_in_the_row() -> None:
    module = deepcopy(BATCH_NORMED)
    module[1].weight.requires_grad_(False)
    assert set(Layout.of(module).shapes) >= {f"1.{name}" for name in STATISTICS}
    assert frozen_names(module) == ("1.weight",)


def test_a_frozen_batch_norm_in_a_trained_network_is_not_in_the_row() -> None:
    module = deepcopy(BATCH_NORMED)
    module[1].requires_grad_(False)
    assert list(Layout.of(module).shapes) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert frozen_names(module) == ("1.weight", "1.bias", *(f"1.{name}" for name in STATISTICS))


def test_buffers_without_parameters_follow_the_nearest_module_with_parameters() -> None:
    inside = nn.Sequential(nn.Sequential(nn.Sequential(Normalize(3)), nn.Linear(3, 3)))
    module = nn.Sequential(inside, nn.Linear(3, 1), Normalize(1))
    inside.requires_grad_(False)
    assert list(Layout.of(module).shapes) == ["1.weight", "1.bias", "2.mean", "2.scale"]
    constants = nn.Sequential(Normalize(3), nn.ReLU())
    assert list(Layout.of(constants).shapes) == ["0.mean", "0.scale"]


def test_a_tied_parameter_has_one_entry_and_is_frozen_in_both_places() -> None:
    module = Tied()
    assert list(Layout.of(module).shapes) == ["first.weight", "first.bias", "second.bias"]
    module.first.weight.requires_grad_(False)
    assert list(Layout.of(module).shapes) == ["first.bias", "second.bias"]
    assert frozen_names(module) == ("first.weight",)


def test_a_buffer_shared_with_a_trained_module_is_in_the_row() -> None:
    """Wherever it comes first, and it does not stop the module from training."""
    for trained_first in (False, True):
        frozen, trained = nn.BatchNorm1d(2).requires_grad_(False), nn.BatchNorm1d(2)
        frozen.running_mean = trained.running_mean
        module = nn.Sequential(*((trained, frozen) if trained_first else (frozen, trained)))
        names = [name.partition(".")[2] for name in Layout.of(module).shapes]
        assert names.count("running_mean") == 1
        assert names.count("running_var") == 1
        assert trained.running_mean is not None
        digest = frozen_digest(module)
        trained.running_mean.add_(1)
        assert frozen_digest(module) == digest
        set_training(module)
        assert (trained.training, frozen.training) == (True, False)


def test_an_entirely_frozen_module_has_an_empty_row() -> None:
    module = deepcopy(BATCH_NORMED).requires_grad_(False)
    layout = Layout.of(module)
    assert (dict(layout.shapes), layout.parameters, layout.length) == ({}, (), 0)
    row = layout.row(module)
    assert row.shape == (0,)
    assert layout.load(row, module) is module
    assert layout.unstack(row.expand(3, -1)) == {}


@given(st.integers(0, 2**7 - 1))
def test_frozen_and_trained_state_make_up_the_module(frozen: int) -> None:
    """For any parameters that are frozen, and the row of one module loads into another."""
    module, other = (make_module(lambda: with_head(freeze=False), seed) for seed in (1, 2))
    for part in (module, other):
        for number, parameter in enumerate(part.parameters()):
            parameter.requires_grad_(not frozen >> number & 1)
    layout = Layout.of(module)
    assert layout == Layout.of(other)
    state = {name: t for name, t in module.state_dict().items() if t.is_floating_point()}
    assert set(layout.shapes) | set(frozen_names(module)) == set(state)
    assert not set(layout.shapes) & set(frozen_names(module))
    before = {name: deepcopy(other.state_dict()[name]) for name in frozen_names(other)}
    row = layout.row(module)
    assert layout.load(row, other) is other
    assert torch.equal(layout.row(other), row)
    assert all(torch.equal(other.state_dict()[name], value) for name, value in before.items())
    if layout.length:
        rows = torch.stack([row, 2 * row])
        assert torch.equal(layout.stack(layout.unstack(rows)), rows)


def test_the_digest_depends_on_the_frozen_part_alone() -> None:
    module = make_module(with_head, seed=0)
    state = module.state_dict()
    digest = frozen_digest(module)
    assert len(digest) == 64
    assert digest == frozen_digest(make_module(with_head, seed=0))
    assert digest != frozen_digest(make_module(with_head, seed=1))
    state["1.weight"].add_(1)
    state["2.running_mean"].add_(1)
    assert frozen_digest(module) == digest, "the head is not frozen"
    state["0.2.running_mean"].add_(1)
    assert frozen_digest(module) != digest, "buffers count"
    state["0.2.running_mean"].sub_(1)
    assert frozen_digest(module) == digest
    state["0.1.weight"][0, 0] += 1
    assert frozen_digest(module) != digest, "parameters count"


def test_the_digest_depends_on_names_types_and_shapes() -> None:
    class Named(nn.Module):
        def __init__(self, name: str, values: Tensor) -> None:
            super().__init__()
            self.register_parameter(name, nn.Parameter(values, requires_grad=False))

    parts = [
        Named("a", torch.zeros(2, 3)),
        Named("b", torch.zeros(2, 3)),
        Named("a", torch.zeros(3, 2)),
        Named("a", torch.zeros(6)),
        Named("a", torch.zeros(3, 1, dtype=torch.float64)),
        Named("a", torch.zeros(2, 3, dtype=torch.int32)),
        Named("a", torch.zeros(0)),
        Named("a", torch.tensor(0.0)),
        Named("a", torch.zeros(2, 3, dtype=torch.bfloat16)),
        Named("a", torch.zeros(2, 3, dtype=torch.bool)),
    ]
    assert len({frozen_digest(part) for part in parts}) == len(parts)
    assert frozen_digest(Named("a", torch.eye(3)[:, :2].T)) == frozen_digest(
        Named("a", torch.eye(3)[:2])
    ), "values count, not how they lie in memory"


def test_a_frozen_batch_norm_never_updates() -> None:
    module = with_head().eval()
    assert set_training(module) is module
    modes = {name: part.training for name, part in module.named_modules()}
    assert {name for name, training in modes.items() if not training} == {"0.0", "0.2"}
    digest, row = frozen_digest(module), Layout.of(module).row(module)
    module(torch.randn(8, 3))
    assert frozen_digest(module) == digest
    assert not torch.equal(Layout.of(module).row(module), row), "the head's statistics do"


@pytest.mark.parametrize("model", TRAINED)
def test_set_training_without_frozen_parameters_is_train(model: Callable[[], nn.Module]) -> None:
    module = set_training(model().eval())
    assert all(part.training for part in module.modules())


def test_the_counter_of_batches_does_not_matter() -> None:
    """It may be dropped from a module, and a frozen BatchNorm does not read it."""
    module = with_head()
    digest = frozen_digest(module)
    batch_norm = module.get_submodule("0.2")
    assert isinstance(batch_norm, nn.BatchNorm1d)
    batch_norm.num_batches_tracked = None
    assert frozen_digest(module) == digest


def test_make_module_shares_no_tensors() -> None:
    template = nn.Linear(3, 2)
    copy = make_module(template, seed=0)
    assert torch.equal(Layout.of(copy).row(copy), Layout.of(template).row(template))
    copy.requires_grad_(False)
    assert template.weight.requires_grad
    always_the_same = make_module(lambda: template, seed=0)
    assert always_the_same is not template
    a, b = (make_module(mlp(3, 2), seed=4) for _ in range(2))
    assert torch.equal(Layout.of(a).row(a), Layout.of(b).row(b))


def test_a_model_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="must be a module, or a function that returns one: None"):
        make_module(None, seed=0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="model must return a module, not None"):
        make_module(lambda: None, seed=0)  # type: ignore[arg-type, return-value]


@given(st.integers(0, 5), st.integers(1, 5))
def test_consecutive_indices_are_a_slice(first: int, count: int) -> None:
    assert as_slice(torch.arange(first, first + count)) == slice(first, first + count)
    indices = torch.tensor([first, first + 2])
    assert as_slice(indices) is indices
