"""Sparse attention in files, in half precision, compiled, and its gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tests.heads.test_attention import attention, inputs, padding
from unarg_callback.heads import SparseAttention

KINDS: list[dict[str, Any]] = [
    {"map": "sparsegen_lin", "lambda_": [0.0, 0.8]},
    {"map": "sparsegen_lin", "learnable": True, "score": "additive"},
    {"map": "sparsehourglass", "q": 0.5},
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_state_gives_the_same_outputs(kind: dict[str, Any], tmp_path: Any) -> None:
    query, memory = inputs()
    ours = attention(8, 2, **kind)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.1)
    torch.save(ours.state_dict(), tmp_path / "state.pt")
    other = SparseAttention(8, 2, **kind)
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other(query, memory, memory)[0], ours(query, memory, memory)[0])
    assert torch.equal(
        copy.deepcopy(ours)(query, memory, memory)[0], other(query, memory, memory)[0]
    )


def test_a_fixed_number_is_no_part_of_the_state() -> None:
    assert {name.split(".")[0] for name in attention(8, 2).state_dict()} == {
        "query_projection",
        "key_projection",
        "value_projection",
        "output_projection",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_keeps_weights_in_float32(kind: dict[str, Any]) -> None:
    query, memory = inputs()
    ours = attention(8, 2, **kind)
    expected, _ = ours(query, memory, memory, padding())
    with torch.autocast("cpu", torch.bfloat16):
        output, weights = ours(query, memory, memory, padding(), True)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 4))
    torch.testing.assert_close(output.float(), expected, rtol=0.05, atol=0.05)
    output.float().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in ours.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_a_bfloat16_module_works(kind: dict[str, Any]) -> None:
    query, memory = inputs()
    ours = attention(8, 2, **kind)
    expected, _ = ours(query, memory, memory)
    ours.bfloat16()
    output, _ = ours(query.bfloat16(), memory.bfloat16(), memory.bfloat16())
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_it_compiles_as_one_graph(kind: dict[str, Any]) -> None:
    torch.compiler.reset()  # What other tests compiled counts towards a limit.
    query, memory = inputs()
    ours = attention(8, 2, **kind)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    mask = padding()
    mask[1] = True
    for causal in (False, True):
        options = {"key_padding_mask": mask, "need_weights": True, "is_causal": causal}
        for found, expected in zip(
            compiled(query, memory, memory, **options),
            ours(query, memory, memory, **options),
            strict=True,
        ):
            torch.testing.assert_close(found, expected)
    compiled(query, memory, memory)[0].sum().backward()
    found = [p.grad.clone() for p in ours.parameters() if p.grad is not None]
    ours.zero_grad()
    ours(query, memory, memory)[0].sum().backward()
    expected_grads = [p.grad for p in ours.parameters()]
    torch.testing.assert_close(found, expected_grads)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_right(kind: dict[str, Any]) -> None:
    query, memory = inputs(batch=2, length=2, keys=3, width=4)
    ours = attention(4, 2, **kind).double()
    mask = torch.tensor([[False, False, True], [True, True, True]])
    given = [x.double().requires_grad_() for x in (query, memory)]
    assert torch.autograd.gradcheck(lambda q, m: ours(q, m, m, mask)[0], given)
