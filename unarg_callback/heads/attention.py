"""Multi-head attention whose weights come from a sparse map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unarg_callback.activations.parameters import Parameter
from unarg_callback.errors import UnargError
from unarg_callback.heads.named_maps import named_map

Score = Literal["dot", "additive"]


class AttentionError(UnargError):
    """Sizes, options, inputs or masks of an attention do not fit together."""


class SparseAttention(nn.Module):
    """Multi-head attention with any map; takes the place of ``nn.MultiheadAttention``.

    It has the same order of arguments, batch first, and the same meaning of masks (True is left
    out), so that it can be put into ``nn.TransformerDecoderLayer`` and the like. For
    ``score="dot"`` scores are ``q.k / sqrt(head width)``, for ``"additive"`` they are the paper's
    ``v.tanh(W_s s + W_h h)`` (Laha et al. 2018, Eq. 22), which takes memory for every pair of query
    and key times the head width.

    A query with no key to attend to, because all are left out or there are none, has weights 0,
    and its output is the bias of the output projection.

    Maps are ``named_map``'s. Scores have either sign, so sum_normalization and sparsegen_log give
    NaN, and sparsecone does where their sum is too low.

    Args:
        width: features of queries and outputs.
        heads: must divide ``width``.
        score: "dot" or "additive".
        map: name of the map.
        lambda_: of sparsegen, below 1; one number, or one for each head.
        q: of sparsecone and sparsehourglass, at least 0; one number, or one for each head.
        learnable: learn lambda or q, for each head its own.
        key_width: features of keys; that of queries if None.
        value_width: features of values; that of keys if None.
        bias: whether projections have biases.
        dropout: share of weights dropped in training.

    Raises:
        AttentionError: sizes or options don't fit.
        ParameterError: there is no such map, or a parameter is outside of its range.

    Examples:
        >>> import torch
        >>> attention = SparseAttention(16, heads=2, map="sparsegen_lin", lambda_=[0.0, 0.9])
        >>> query, memory = torch.randn(3, 5, 16), torch.randn(3, 7, 16)
        >>> output, weights = attention(query, memory, memory, need_weights=True)
        >>> output.shape, weights.shape
        (torch.Size([3, 5, 16]), torch.Size([3, 2, 5, 7]))
    """

    def __init__(
        self,
        width: int,
        heads: int = 1,
        *,
        score: Score = "dot",
        map: str = "sparsemax",
        lambda_: float | Sequence[float] = 0.0,
        q: float | Sequence[float] = 1.0,
        learnable: bool = False,
        key_width: int | None = None,
        value_width: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise AttentionError(f"{heads} heads don't divide a width of {width}: choose a divisor")
        if score not in ("dot", "additive"):
            raise AttentionError(f"score is {score!r}, expected 'dot' or 'additive'")
        key_width = width if key_width is None else key_width
        value_width = key_width if value_width is None else value_width
        self.heads = heads
        self.dropout = dropout
        self.query_projection = nn.Linear(width, width, bias=bias)
        self.key_projection = nn.Linear(key_width, width, bias=bias)
        self.value_projection = nn.Linear(value_width, width, bias=bias)
        self.output_projection = nn.Linear(width, width, bias=bias)
        head_width = width // heads
        self.direction = (
            nn.Parameter(torch.empty(heads, head_width)) if score == "additive" else None
        )
        self.map = named_map(
            map,
            lambda_=_for_heads("lambda_", lambda_, heads, learnable),
            q=_for_heads("q", q, heads, learnable),
            learnable=learnable,
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the projections anew; lambda and q stay as they are."""
        for name in ("query", "key", "value", "output"):
            projection = self.get_submodule(f"{name}_projection")
            assert isinstance(projection, nn.Linear)
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
        if self.direction is not None:
            nn.init.normal_(self.direction, std=self.direction.shape[-1] ** -0.5)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            query: (B, T, width).
            key: (B, S, key_width).
            value: (B, S, value_width).
            key_padding_mask: (B, S) bool, True where a key is left out.
            need_weights: whether to return the weights.
            attn_mask: (T, S), (B, heads, T, S) or, as ``nn.MultiheadAttention`` has it,
                (B * heads, T, S) bool, True where a query mustn't see a key.
            is_causal: query t sees keys 0 to t only, whether or not ``attn_mask`` says so.

        Returns:
            (B, T, width) outputs, and (B, heads, T, S) weights before dropout, in float32 under
            autocast, or None.

        Raises:
            AttentionError: inputs or masks don't fit. Float masks are refused: -inf, added to
                scores, is no mask for every map.
        """
        _check_inputs(query, key, value)
        allowed = self._allowed(query, key, key_padding_mask, attn_mask, is_causal)
        queries, keys, values = (
            projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection, x in (
                (self.query_projection, query),
                (self.key_projection, key),
                (self.value_projection, value),
            )
        )
        weights = self._weights(self._scores(queries, keys), allowed)
        used = F.dropout(weights, self.dropout, self.training)
        attended = used.to(values.dtype) @ values
        output: Tensor = self.output_projection(attended.transpose(1, 2).flatten(-2))
        return output, weights if need_weights else None

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        score = "dot" if self.direction is None else "additive"
        return f"heads={self.heads}, score={score!r}, dropout={self.dropout}"

    def _scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(B, heads, T, S) of (B, heads, T, head width) and (B, heads, S, head width)."""
        if self.direction is None:
            return (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
        hidden = (queries.unsqueeze(-2) + keys.unsqueeze(-3)).tanh()
        return torch.einsum("bhtsw,hw->bhts", hidden, self.direction)

    def _weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        if scores.shape[-1] == 0:
            return scores
        if allowed is None:
            weights: Tensor = self.map(scores)
            return weights
        some = allowed.any(-1, keepdim=True)
        # A row without keys would be NaN: let it see all, and throw away what it gives.
        weights = self.map(scores, allowed | ~some)
        return weights.masked_fill(~some, 0.0)

    def _allowed(
        self,
        query: Tensor,
        key: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        is_causal: bool,
    ) -> Tensor | None:
        """What each query may see, broadcastable to (B, heads, T, S); None if everything."""
        batch, length, keys = len(query), query.shape[1], key.shape[1]
        left_out = []
        if key_padding_mask is not None:
            _check_mask("key_padding_mask", key_padding_mask, [(batch, keys)])
            left_out.append(key_padding_mask[:, None, None, :])
        if attn_mask is not None:
            full = (batch, self.heads, length, keys)
            flat = (batch * self.heads, length, keys)
            _check_mask("attn_mask", attn_mask, [(length, keys), flat, full])
            left_out.append(attn_mask.reshape(full) if attn_mask.dim() == 3 else attn_mask)
        if is_causal:
            ones = torch.ones(length, keys, dtype=torch.bool, device=query.device)
            left_out.append(ones.triu(1))
        if not left_out:
            return None
        out = left_out[0]
        for more in left_out[1:]:
            out = out | more
        return ~out


def _for_heads(name: str, value: float | Sequence[float], heads: int, learnable: bool) -> Parameter:
    """One number as it is, if it stays fixed; else (heads, 1, 1)."""
    if isinstance(value, Sequence):
        if len(value) != heads:
            raise AttentionError(f"{name} has {len(value)} numbers, expected 1 or {heads}, a head")
        return torch.tensor(value, dtype=torch.get_default_dtype()).view(heads, 1, 1)
    return torch.full((heads, 1, 1), float(value)) if learnable else value


def _check_inputs(query: Tensor, key: Tensor, value: Tensor) -> None:
    shapes = [tuple(x.shape) for x in (query, key, value)]
    fits = all(len(shape) == 3 for shape in shapes)
    if not fits or len({shape[0] for shape in shapes}) > 1 or key.shape[1] != value.shape[1]:
        raise AttentionError(
            f"query, key and value have shapes {shapes[0]}, {shapes[1]} and {shapes[2]}; expected "
            "(B, T, width), (B, S, width) and (B, S, width)"
        )


def _check_mask(name: str, mask: Tensor, shapes: list[tuple[int, ...]]) -> None:
    if mask.dtype != torch.bool:
        raise AttentionError(f"{name} is {mask.dtype}, expected bool, True where a key is left out")
    if tuple(mask.shape) not in shapes:
        expected = " or ".join(str(shape) for shape in shapes)
        raise AttentionError(f"{name} has shape {tuple(mask.shape)}, expected {expected}")
