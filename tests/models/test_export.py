"""Models in the formats of other programs compute the same."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from srfca import InputError
from srfca.models import CNN, LSTM, MixtureModule, ResNet9, Signature, export, mlp
from tests import examples

MODULES: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "mlp": (mlp(6, 4, 3), torch.randn(5, 6)),
    "double": (examples.doubled(mlp(6, 4, 3)), torch.randn(5, 6).double()),
    "cnn": (CNN(classes=3, size=8, hidden=4), torch.randn(5, 8, 8)),
    "resnet9": (ResNet9(width=2), torch.randn(5, 3, 8, 8)),
    "lstm": (LSTM(symbols=5, embedding=2, hidden=3), torch.randint(5, (5, 4))),
    "frozen": (examples.Frozen, torch.randn(5, 6)),
    "mixture": (
        lambda: MixtureModule([mlp(6, 3)(), mlp(6, 3)()], torch.tensor([0.3, 0.7]), True),
        torch.randn(5, 6),
    ),
}


def signature_of(x: Tensor) -> Signature:
    return Signature.of(x, torch.zeros(len(x), dtype=torch.int64), "cross_entropy")


@pytest.mark.parametrize("name", MODULES)
def test_an_onnx_file_computes_the_same_for_any_number_of_samples(name: str) -> None:
    onnx = pytest.importorskip("onnx", reason="needs srfca[onnx]")
    pytest.importorskip("onnxscript", reason="needs srfca[onnx]")
    from onnx.reference import ReferenceEvaluator

    make, x = MODULES[name]
    module = make().eval()
    loaded = onnx.load_from_string(export.onnx_bytes(module, signature_of(x)))
    onnx.checker.check_model(loaded)
    for samples in (x, x[:1], x[:3]):
        [outputs] = ReferenceEvaluator(loaded).run([export.OUTPUT], {export.INPUT: samples.numpy()})
        with torch.no_grad():
            expected = module(samples)
        torch.testing.assert_close(torch.from_numpy(outputs), expected, rtol=1e-4, atol=1e-5)


class Branching(nn.Module):
    """What it computes depends on its inputs, which no exporter can follow."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_a_model_that_cannot_be_exported_is_refused() -> None:
    pytest.importorskip("onnxscript", reason="needs srfca[onnx]")
    with pytest.raises(InputError, match=r"torch cannot export this model to ONNX: .*safetensors"):
        export.onnx_bytes(Branching(), signature_of(torch.ones(2, 3)))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "is_installed", lambda name: name != "onnxscript")
    with pytest.raises(InputError, match=r"needs onnxscript: .*pip install 'srfca\[onnx\]'"):
        export.check_format("onnx")
    export.check_format("torch")
    with pytest.raises(InputError, match="unknown format 'safetensor': did you mean 'safetensors'"):
        export.check_format("safetensor")


def test_state_dicts_are_read_by_torch_and_safetensors() -> None:
    state = {"weight": torch.randn(3, 2).T, "steps": torch.tensor(3)}
    as_torch = export.state_bytes(state, "torch")
    as_safetensors = export.state_bytes(state, "safetensors")
    for loaded in (
        torch.load(io.BytesIO(as_torch), weights_only=True),
        safetensors.torch.load(as_safetensors),
    ):
        assert set(loaded) == set(state)
        assert all(torch.equal(loaded[name], state[name]) for name in state)
