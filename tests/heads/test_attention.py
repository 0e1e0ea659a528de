"""Sparse attention: scores and masks against PyTorch's own and against loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unarg_callback.activations import softmax, sparsegen
from unarg_callback.heads import AttentionError, SparseAttention
from unarg_callback.heads.named_maps import MAP_NAMES

SIGNED = [
    name for name in MAP_NAMES if name not in ("sum_normalization", "sparsegen_log", "sparsecone")
]


def inputs(batch: int = 3, length: int = 4, keys: int = 6, width: int = 8) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = ((batch, length, width), (batch, keys, width))
    query, memory = (torch.randn(shape, generator=draw) for shape in shapes)
    return query, memory


def attention(*args: Any, **options: Any) -> SparseAttention:
    torch.manual_seed(0)
    return SparseAttention(*args, **options)


def padding() -> Tensor:
    return torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1], [1, 0, 0, 1, 1, 1]]).bool()


def like_pytorch(reference: nn.MultiheadAttention) -> SparseAttention:
    ours = SparseAttention(reference.embed_dim, reference.num_heads, map="softmax")
    state = reference.state_dict()
    with torch.no_grad():
        for name, weight, bias in zip(
            ("query", "key", "value"),
            state["in_proj_weight"].chunk(3),
            state["in_proj_bias"].chunk(3),
            strict=True,
        ):
            projection = ours.get_submodule(f"{name}_projection")
            projection.weight.copy_(weight)  # type: ignore[operator]
            projection.bias.copy_(bias)  # type: ignore[operator]
        ours.output_projection.weight.copy_(state["out_proj.weight"])
        ours.output_projection.bias.copy_(state["out_proj.bias"])
    return ours


@pytest.mark.parametrize("masks", ["none", "padding", "full", "both", "causal"])
def test_with_softmax_it_is_pytorchs_attention(masks: str) -> None:
    torch.manual_seed(0)
    reference = nn.MultiheadAttention(8, 2, batch_first=True)
    nn.init.normal_(reference.in_proj_bias)
    query, memory = inputs(keys=4 if masks == "causal" else 6)
    full = torch.rand(4, 6) < 0.3
    full[:, 1] = False
    cases: dict[str, dict[str, Any]] = {
        "none": {},
        "padding": {"key_padding_mask": padding()},
        "full": {"attn_mask": full},
        "both": {"key_padding_mask": padding(), "attn_mask": full},
        "causal": {"attn_mask": torch.ones(4, 4).triu(1).bool(), "is_causal": True},
    }
    options = cases[masks]
    ours = like_pytorch(reference)
    output, weights = ours(query, memory, memory, need_weights=True, **options)
    options.pop("is_causal", None)
    expected, expected_weights = reference(
        query, memory, memory, need_weights=True, average_attn_weights=False, **options
    )
    torch.testing.assert_close(weights, expected_weights)
    torch.testing.assert_close(output, expected)
    alone, nothing = ours(query, memory, memory, **options)
    assert nothing is None
    torch.testing.assert_close(alone, expected)


def test_causal_alone_is_the_triangular_mask() -> None:
    query, _ = inputs()
    ours = attention(8, 2)
    _, weights = ours(query, query, query, need_weights=True, is_causal=True)
    assert (weights.triu(1) == 0).all()
    mask = torch.ones(4, 4).triu(1).bool()
    torch.testing.assert_close(ours(query, query, query, None, True, mask)[1], weights)
    repeated = ours(query, query, query, attn_mask=mask.expand(6, 4, 4), need_weights=True)[1]
    torch.testing.assert_close(repeated, weights)


def test_additive_scores_are_the_papers() -> None:
    query, memory = inputs(batch=1)
    ours = attention(8, score="additive", map="sparsegen_lin", lambda_=0.5, bias=False)
    assert ours.direction is not None
    s, h = ours.query_projection.weight, ours.key_projection.weight
    z = torch.stack(
        [
            torch.stack([ours.direction[0] @ torch.tanh(s @ q + h @ k) for k in memory[0]])
            for q in query[0]
        ]
    )
    _, weights = ours(query, memory, memory, need_weights=True)
    torch.testing.assert_close(weights[0, 0], sparsegen(z, 0.5))


def test_additive_heads_have_their_own_directions() -> None:
    query, memory = inputs()
    ours = attention(8, 2, score="additive", map="softmax")
    assert ours.direction is not None
    with torch.no_grad():
        ours.direction[1] = 0
    _, weights = ours(query, memory, memory, need_weights=True)
    torch.testing.assert_close(weights[:, 1], torch.full((3, 4, 6), 1 / 6))
    assert (weights[:, 0] - 1 / 6).abs().max() > 0.01


@pytest.mark.parametrize("score", ["dot", "additive"])
@pytest.mark.parametrize("name", SIGNED)
def test_every_map_gives_distributions_over_the_keys_left(name: str, score: Any) -> None:
    query, memory = inputs()
    ours = attention(8, 2, score=score, map=name)
    output, weights = ours(query, memory, memory, padding(), True)
    assert output.isfinite().all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 4))
    assert (weights.masked_select(padding()[:, None, None, :]) == 0).all()


@pytest.mark.parametrize("name", SIGNED)
def test_padding_changes_nothing(name: str) -> None:
    query, memory = inputs()
    ours = attention(8, 2, map=name)
    longer = torch.cat([memory, 1e3 * torch.ones(3, 2, 8)], 1)
    mask = torch.cat([torch.zeros(3, 6), torch.ones(3, 2)], 1).bool()
    torch.testing.assert_close(ours(query, longer, longer, mask)[0], ours(query, memory, memory)[0])


@pytest.mark.parametrize("name", SIGNED)
def test_a_query_without_keys_gets_weights_0_and_the_bias(name: str) -> None:
    query, memory = inputs()
    ours = attention(8, 2, map=name)
    nn.init.normal_(ours.output_projection.bias)
    mask = padding()
    mask[1] = True
    query.requires_grad_()
    output, weights = ours(query, memory, memory, mask, True)
    assert (weights[1] == 0).all()
    torch.testing.assert_close(output[1], ours.output_projection.bias.expand(4, 8))
    # It also looks at gradients on the way, which NaN weights would make NaN.
    with torch.autograd.set_detect_anomaly(True):
        output.sum().backward()
    gradients = [query.grad, *(p.grad for p in ours.parameters())]
    assert all(g is not None and g.isfinite().all() for g in gradients)
    assert query.grad is not None
    assert (query.grad[1] == 0).all()
    none = memory[:, :0]
    torch.testing.assert_close(ours(query, none, none)[0], output[1].expand(3, 4, 8))


def test_each_head_has_its_own_lambda() -> None:
    query, memory = inputs(width=16)
    ours = attention(16, 4, map="sparsegen_lin", lambda_=[-50.0, -1.0, 0.5, 0.999])
    _, weights = ours(query, memory, memory, need_weights=True)
    support = (weights > 0).sum(-1).float().mean((0, 2))
    assert support[0] == 6
    assert support[3] == 1
    assert (support.diff() < 0).all()


@pytest.mark.parametrize(("name", "start"), [("sparsegen_lin", 0.0), ("sparsehourglass", 1.0)])
def test_a_learned_parameter_is_one_a_head_and_moves(name: str, start: float) -> None:
    query, memory = inputs()
    ours = attention(8, 2, map=name, learnable=True)
    ours(query, memory, memory)[0].square().sum().backward()
    (parameter,) = ours.map.parameters()
    assert parameter.shape == (2, 1, 1)
    assert parameter.grad is not None
    assert (parameter.grad != 0).all()
    value = ours.map.lambda_ if name == "sparsegen_lin" else ours.map.q
    torch.testing.assert_close(value, torch.full((2, 1, 1), start))


def test_keys_and_values_may_have_other_widths() -> None:
    query, memory = inputs()
    ours = attention(8, 2, key_width=5, value_width=3)
    keys, values = memory[..., :5], memory[..., :3]
    assert ours(query, keys, values)[0].shape == query.shape


def test_dropout_is_of_weights_in_training_alone() -> None:
    query, memory = inputs()
    ours = attention(8, 2, map="softmax", dropout=0.5)
    output, weights = ours(query, memory, memory, need_weights=True)
    again, same = ours(query, memory, memory, need_weights=True)
    assert not torch.equal(output, again)
    assert torch.equal(weights, same)
    ours.eval()
    assert torch.equal(ours(query, memory, memory)[0], ours(query, memory, memory)[0])


def test_it_takes_the_place_of_a_decoders_attention() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    query, memory = inputs()
    expected = layer(query, memory, memory_key_padding_mask=padding())
    layer.multihead_attn = like_pytorch(layer.multihead_attn)  # type: ignore[assignment]
    torch.testing.assert_close(layer(query, memory, memory_key_padding_mask=padding()), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "3 heads don't divide a width of 8"),
        ({"heads": 0}, "0 heads"),
        ({"score": "cosine"}, "'cosine', expected 'dot' or 'additive'"),
        ({"heads": 2, "lambda_": [0.1, 0.2, 0.3]}, "lambda_ has 3 numbers, expected 1 or 2"),
        ({"map": "sparsest"}, "no map 'sparsest'"),
        ({"map": "sparsegen_lin", "lambda_": 1.5}, "lambda is 1.5"),
        ({"map": "softmax", "learnable": True}, "softmax has no parameter to learn"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseAttention(8, **options)(*[inputs()[0]] * 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(4, 8)}, r"shapes \(4, 8\)"),
        ({"key": torch.zeros(2, 6, 8)}, r"\(2, 6, 8\)"),
        ({"value": torch.zeros(3, 5, 8)}, r"\(3, 5, 8\)"),
        ({"key_padding_mask": torch.zeros(3, 6)}, "key_padding_mask is torch.float32"),
        ({"key_padding_mask": torch.zeros(3, 4).bool()}, r"\(3, 4\), expected \(3, 6\)"),
        ({"attn_mask": torch.zeros(4, 6)}, "attn_mask is torch.float32"),
        ({"attn_mask": torch.zeros(6, 4).bool()}, r"\(6, 4\), expected \(4, 6\) or \(6, 4, 6\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(change: dict[str, Tensor], message: str) -> None:
    query, memory = inputs()
    given = {"query": query, "key": memory, "value": memory, **change}
    with pytest.raises(AttentionError, match=message):
        attention(8, 2)(**given)


def test_softmax_weights_come_from_scaled_dot_products() -> None:
    query, memory = inputs()
    ours = attention(8, 2, map="softmax")
    q, k = ours.query_projection(query), ours.key_projection(memory)
    _, weights = ours(query, memory, memory, need_weights=True)
    for head in range(2):
        part = slice(4 * head, 4 * head + 4)
        z = q[..., part] @ k[..., part].transpose(1, 2) / 2
        torch.testing.assert_close(weights[:, head], softmax(z))
