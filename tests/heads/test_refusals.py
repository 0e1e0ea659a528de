"""Heads refuse bad parameters where they are made, not at the first batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from unarg_callback.activations import ParameterError, Sparsemax
from unarg_callback.heads import MultilabelHead, SparseAttention, named_map
from unarg_callback.losses import SparsemaxHuberLoss, TargetError


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sparsegen_lin", {"lambda_": 1.5}, "lambda is 1.5"),
        ("sparsegen_log", {"lambda_": torch.tensor([0.0, 1.0])}, "lambda has 1.0"),
        ("sparsecone", {"q": -0.5}, "q is -0.5"),
        ("sparsehourglass", {"q": float("nan")}, "q is nan"),
        ("sparsehourglass", {"q": 0.0, "learnable": True}, "0.0 can't be learned"),
    ],
)
def test_maps_by_name(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        named_map(name, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map": "sparsegen_lin", "lambda_": [0.5, 1.0]}, "lambda has 1.0"),
        ({"map": "sparsegen_exp", "lambda_": 2.0, "learnable": True}, "lambda has 2.0"),
        ({"map": "sparsehourglass", "q": -1.0}, "q is -1.0"),
        ({"map": "sparsecone", "q": [1.0, 0.0], "learnable": True}, "can't be learned"),
    ],
)
def test_attention(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        SparseAttention(8, 2, **options)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("sparsegen_lin+huber", {"lambda_": 1.5}, "lambda is 1.5"),
        ("sparsegen_lin+hinge", {"lambda_": 1.0}, "lambda is 1.0"),
        ("sparsehourglass+hinge", {"q": 0.0}, "q is 0.0, expected a number above 0"),
        ("sparsemax+hinge", {"pairs": "both"}, "'both', expected 'ordered'"),
        ("sparsemax+huber", {"empty": "drop"}, "'drop', expected 'ignore'"),
        ("softmax+log", {"reduction": "average"}, "'average', expected 'mean'"),
    ],
)
def test_label_set_heads(method: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ParameterError, TargetError), match=message):
        MultilabelHead.named(method, in_features=2, num_labels=3, **options)


@pytest.mark.parametrize("threshold", [-0.1, float("nan")])
def test_thresholds(threshold: float) -> None:
    with pytest.raises(ParameterError, match="expected at least 0"):
        MultilabelHead(2, 3, Sparsemax(), SparsemaxHuberLoss(), threshold=threshold)
