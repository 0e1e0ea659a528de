"""Maps in exported programs: torch.export, torch.jit.trace, ONNX, each run on another batch."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.activations.maps import CASES, inside
from unarg_callback.heads import MultilabelHead, named_map
from unarg_callback.heads.named_maps import MAP_NAMES

LEARNED = ("sparsegen_lin", "sparsehourglass")
KINDS = [(name, False) for name in MAP_NAMES] + [(name, True) for name in LEARNED]
# The first is of project()'s look for empty inputs.
IGNORED = (".*torch.jit.*deprecated:DeprecationWarning",)


def tracing(test: Callable[..., None]) -> Callable[..., None]:
    """Let PyTorch's own warnings of traces pass."""
    for warning in IGNORED:
        test = pytest.mark.filterwarnings(f"ignore:{warning}")(test)
    return test


every = pytest.mark.parametrize(("name", "learnable"), KINDS)


class Model(nn.Module):
    """A layer, what brings its scores into the map's domain, and the map with a mask."""

    def __init__(self, name: str, learnable: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 6)
        self.domain = CASES[name].domain
        values = torch.tensor([[0.3], [0.5], [0.1]]) if learnable else 0.3
        self.map = named_map(name, lambda_=values, q=values, learnable=learnable)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        p: Tensor = self.map(self.domain(self.linear(x)), mask)
        return p


def inputs(batch: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(batch)
    mask = torch.rand(batch, 3, 6, generator=draw) < 0.7
    mask[..., 0] = True
    return torch.randn(batch, 3, 4, generator=draw), mask


def in_onnx_runtime(model: nn.Module, batch: int, *given: Tensor) -> Tensor:
    """Export a model at one size of the batch, and run it on another."""
    for module in ("onnx", "onnxscript"):
        pytest.importorskip(module)
    runtime = pytest.importorskip("onnxruntime")
    example = tuple(x[:1].expand(batch, *x.shape[1:]).clone() for x in given)
    program = torch.onnx.export(
        model,
        example,
        dynamo=True,
        verbose=False,
        dynamic_shapes=tuple({0: torch.export.Dim("batch", min=2)} for _ in given),
    )
    assert program is not None
    model_proto = program.model_proto.SerializeToString()
    session: Any = runtime.InferenceSession(model_proto, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    values = {name: x.numpy() for name, x in zip(names, given, strict=True)}
    return torch.from_numpy(session.run(None, values)[0])


@every
def test_exported_programs(name: str, learnable: bool) -> None:
    model = Model(name, learnable)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(model, inputs(2), dynamic_shapes=({0: batch}, {0: batch}))
    torch.testing.assert_close(program.module()(*inputs(5)), model(*inputs(5)))


@every
@tracing
def test_traced_modules(name: str, learnable: bool) -> None:
    """TorchScript's users (dreamquark-ai/tabnet#485): a trace is what they can have."""
    model = Model(name, learnable)
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(model, inputs(2)), file)
    file.seek(0)
    traced = torch.jit.load(file)
    x, mask = inputs(5)
    again = x.clone().requires_grad_()
    x.requires_grad_()
    found, expected = traced(x, mask), model(again, mask)
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(x.grad, again.grad)


@every
@pytest.mark.slow
def test_onnx(name: str, learnable: bool) -> None:
    """dreamquark-ai/tabnet#277."""
    model = Model(name, learnable).eval()
    found = in_onnx_runtime(model, 2, *inputs(5))
    torch.testing.assert_close(found, model(*inputs(5)).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_onnx_of_a_head_and_of_long_rows() -> None:
    head = MultilabelHead.named("sparsehourglass+hinge", in_features=4, num_labels=3000, q=0.1)
    model = nn.Sequential(head.linear, head.map).eval()
    x = inputs(5)[0]
    found = in_onnx_runtime(model, 2, x)
    torch.testing.assert_close(found, model(x).detach(), rtol=1e-4, atol=1e-6)


@tracing
def test_undefined_rows_are_nan_in_a_trace_too() -> None:
    z = torch.stack([inside("sparsemax", 6), torch.full((6,), torch.nan)])
    traced = torch.jit.trace(named_map("sparsehourglass"), inside("sparsemax", 2, 6))
    assert traced(z).isnan().all(1).tolist() == [False, True]
