"""Random heads, rules and domains, many of them degenerate."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from unarg_callback import Domain
from unarg_callback.label_sets import (
    LabelHead,
    Rule,
    SparsegenRule,
    SparsehourglassRule,
    ThresholdRule,
    TopRule,
)

RULES: tuple[Rule, ...] = (
    ThresholdRule(),
    ThresholdRule(0.75),
    TopRule(),
    SparsegenRule(),
    SparsegenRule(0.875),
    SparsegenRule(-4.0),
    SparsehourglassRule(),
    SparsehourglassRule(0.0),
    SparsehourglassRule(0.0625),
    SparsehourglassRule(float("inf")),
)

DOMAINS = (
    Domain.box(1.0),
    Domain.box(16.0),
    Domain.nonnegative(2.0),
    Domain.box(-0.5, 3.0),
    Domain.free(),
)


def integral_head(rng: np.random.Generator, labels: int, dim: int, rule: Rule) -> LabelHead:
    """Small integers, so that ties, equal rows, rows of zeros and dependent columns are common."""
    span = int(rng.integers(1, 6))
    weight = rng.integers(-span, span + 1, size=(labels, dim)).astype(float)
    kind = rng.integers(6)
    if kind == 0 and labels > 1:
        weight[-1] = weight[0]
    if kind == 1:
        weight[rng.integers(labels)] = 0
    if kind == 2 and dim > 1:
        weight[:, -1] = 2 * weight[:, 0]
    bias = rng.integers(-3, 4, size=labels) / 2 if rng.integers(2) else None
    if kind == 0 and bias is not None and labels > 1 and rng.integers(2):
        bias[-1] = bias[0]
    return LabelHead(weight, bias, rule)


def normal_head(rng: np.random.Generator, labels: int, dim: int, rule: Rule) -> LabelHead:
    """Normal weights, with a bias in half of the cases."""
    bias = rng.normal(size=labels) if rng.integers(2) else None
    return LabelHead(rng.normal(size=(labels, dim)), bias, rule)


def all_sets(labels: int) -> NDArray[np.bool_]:
    """(2^K, K) every label set."""
    return np.array(list(itertools.product([False, True], repeat=labels)), dtype=np.bool_)
