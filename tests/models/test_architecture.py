"""Rows become modules again: directly, after JSON, and never a wrong one."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from srfca import InputError
from srfca.models import Architecture, Signature, frozen_names, mlp
from srfca.models.factory import Model
from srfca.models.rows import make_module
from tests import examples


class Tied(nn.Module):
    """Shares a weight, and has buffers that are no numbers to train, one of them not persistent."""

    mask: Tensor
    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 7)
        self.out.weight = self.embedding.weight
        self.register_buffer("mask", torch.tensor([True, False, True, True]))
        self.register_buffer("positions", torch.arange(3), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        summed = self.embedding(x).mean(1) * self.mask
        return torch.as_tensor(self.out(self.norm(summed)))


def backbone() -> nn.Module:
    """A frozen backbone with a BatchNorm, whose values depend on when it is made, and a head."""
    frozen = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)).requires_grad_(False)
    return nn.Sequential(frozen, nn.ReLU(), nn.Linear(5, 3))


MODELS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "mlp": (mlp(6, 4, 3), torch.randn(5, 6)),
    "frozen": (examples.Frozen, torch.randn(5, 6)),
    "backbone": (backbone, torch.randn(5, 6)),
    "tied": (Tied, torch.randint(7, (5, 3))),
    "recurrent": (examples.Recurrent, torch.randint(7, (5, 4))),
    "batch norm": (examples.batch_normed, torch.randn(5, 1, 6, 6)),
    "cumulative batch norm": (examples.cumulative_batch_norm, torch.randn(5, 6)),
}


def saved(architecture: Architecture) -> Architecture:
    """The architecture after a round trip through JSON, without its model."""
    content = json.loads(json.dumps(architecture.to_json()))
    return Architecture.from_json(content, architecture.frozen)


def other_row(architecture: Architecture, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(architecture.layout.length, generator=generator)


def outputs(module: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.as_tensor(module(x))


@pytest.mark.parametrize("name", MODELS)
def test_a_row_becomes_a_module(name: str) -> None:
    model, x = MODELS[name]
    architecture = Architecture.of(model)
    original = make_module(model, seed=0)
    row = other_row(architecture)
    expected = outputs(architecture.layout.load(row, original).eval(), x)
    for built in (architecture, saved(architecture), saved(architecture).with_model(model)):
        module = built.build(row)
        assert not module.training
        torch.testing.assert_close(outputs(module, x), expected)
        assert torch.equal(built.layout.row(module), row)


@pytest.mark.parametrize("name", MODELS)
def test_a_state_dict_needs_no_factory(name: str) -> None:
    model, x = MODELS[name]
    architecture = Architecture.of(model)
    row = other_row(architecture)
    state = saved(architecture).state_dict(row)
    fresh = make_module(model, seed=1)
    assert list(state) == list(fresh.state_dict())
    fresh.load_state_dict(state)  # strict: no key is missing, none is too many
    torch.testing.assert_close(outputs(fresh.eval(), x), outputs(architecture.build(row), x))
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)


@given(st.lists(st.integers(1, 6), min_size=2, max_size=4), st.integers(0, 10))
def test_networks_of_any_size_are_the_same_after_json(sizes: list[int], seed: int) -> None:
    signature = Signature((sizes[0],), "float32", (), True, "cross_entropy")
    model = mlp(*sizes)
    architecture = Architecture.of(model, signature=signature)
    row, x = other_row(architecture, seed), torch.randn(3, sizes[0])
    loaded = saved(architecture)
    assert (loaded.layout, loaded.factory) == (architecture.layout, architecture.factory)
    assert loaded.signature == signature
    assert torch.equal(outputs(loaded.build(row), x), outputs(architecture.build(row), x))


def test_the_frozen_part_is_held_once_and_saved() -> None:
    module = backbone()
    architecture = Architecture.of(backbone, module)
    weight = dict(module.named_parameters())["0.0.weight"]
    assert architecture.frozen["0.0.weight"].data_ptr() == weight.data_ptr()
    assert set(frozen_names(module)) <= set(architecture.frozen)
    counter = architecture.frozen["0.1.num_batches_tracked"]
    dict(module.named_buffers())["0.1.num_batches_tracked"].add_(3)
    assert int(counter) == 0, "what training may change is copied"
    built = saved(architecture).build(architecture.layout.row(module))
    assert torch.equal(dict(built.named_parameters())["0.0.weight"], weight)
    assert built[0][1].running_mean.requires_grad is False  # type: ignore[index]


def test_a_module_shares_nothing_with_another_one() -> None:
    architecture = Architecture.of(nn.Linear(2, 1))
    row = torch.ones(3)
    first, second = architecture.build(row), architecture.build(row)
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.fill_(5.0)
    assert torch.equal(architecture.layout.row(second), row)
    assert torch.equal(row, torch.ones(3))


@pytest.mark.parametrize("model", [nn.Linear(2, 1), lambda: nn.Linear(2, 1)])
def test_a_model_without_a_name_has_to_be_passed(model: Model) -> None:
    architecture = saved(Architecture.of(model))
    with pytest.raises(InputError, match="without an importable name: pass what makes it: Result"):
        architecture.build(torch.ones(3))
    built = architecture.with_model(lambda: nn.Linear(2, 1)).build(torch.ones(3))
    assert outputs(built, torch.ones(1, 2)).item() == 3.0


def test_a_factory_that_is_gone_is_named() -> None:
    content = Architecture.of(mlp(2, 1)).to_json()
    content["factory"] = {"name": "gone_nets:Net", "arguments": {}}
    architecture = Architecture.from_json(content, {})
    message = "cannot be made again: model 'gone_nets:Net': there is no module.*Result.load"
    with pytest.raises(InputError, match=message):
        architecture.build(torch.ones(3))


def test_another_module_than_the_saved_one_is_refused() -> None:
    architecture = Architecture.of(mlp(4, 3, 2))
    wider, shallow = mlp(4, 5, 2), nn.Sequential(nn.Flatten(), nn.Linear(4, 3))

    def frozen() -> nn.Module:
        module = mlp(4, 3, 2)()
        for parameter in list(module.parameters())[:1]:
            parameter.requires_grad_(False)
        return module

    for model, message in (
        (wider, r"'1.weight' is trained with shape \(3, 4\).*trained with shape \(5, 4\)"),
        (shallow, r"'3.weight' is trained with shape \(2, 3\).*not trained in the module"),
        (frozen, "'1.weight' is trained.*but not trained in the module"),
        (examples.doubled(mlp(4, 3, 2)), "type float64, but the result's is of type float32"),
    ):
        with pytest.raises(InputError, match=message):
            architecture.with_model(model)
    with pytest.raises(InputError, match=r"'1\.weight' is not trained in the result"):
        Architecture.of(frozen).with_model(mlp(4, 3, 2))
    content = architecture.to_json()
    content["factory"]["arguments"]["hidden"] = [7]  # the code has changed since
    with pytest.raises(InputError, match="model 'mlp' makes another module"):
        Architecture.from_json(content, {}).build(torch.ones(23))


def test_mixtures_need_to_know_what_they_average() -> None:
    with pytest.raises(InputError, match="average probabilities or outputs"):
        Architecture.of(nn.Linear(2, 1)).build_mixture(torch.ones(2, 3), torch.ones(2) / 2)
