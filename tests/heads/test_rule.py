"""The rule that a head's map and threshold make, and what the head really puts out."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from unarg_callback.activations import Sparsegen, Sparsehourglass
from unarg_callback.heads import MultilabelHead
from unarg_callback.heads.named_maps import MAP_NAMES, named_map
from unarg_callback.heads.rule import ranks_by_size, rule_of
from unarg_callback.label_sets import (
    RuleError,
    SetStatus,
    SetWitness,
    SparsegenRule,
    SparsehourglassRule,
    ThresholdRule,
    TopRule,
    verify_label_sets,
)

BY_SIZE = ("spherical_softmax", "sparsegen_sq")
EXACT: dict[str, Any] = {
    "sparsemax": SparsegenRule(0.0),
    "sparsegen_lin": SparsegenRule(-2.0),
    "sparsehourglass": SparsehourglassRule(0.25),
    "sum_normalization_pp": SparsehourglassRule(0.0),
}


class Own(nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return -z


@pytest.mark.parametrize("name", MAP_NAMES)
def test_named_maps(name: str) -> None:
    map_ = named_map(name, lambda_=-2.0, q=0.25)
    assert ranks_by_size(map_) == (name in BY_SIZE)
    if name in BY_SIZE:
        with pytest.raises(RuleError, match=r"maps that rank by \|z\|"):
            rule_of(map_, 0.0)
        return
    expected = (EXACT[name], True) if name in EXACT else (TopRule(), False)
    assert rule_of(map_, 0.0) == expected
    assert rule_of(map_, 0.2) == (TopRule(), False)


def test_order_and_size_are_told_apart_by_the_maps_themselves() -> None:
    z = torch.tensor([1.0, -3.0, 2.0])
    for name in MAP_NAMES:
        p = named_map(name, q=2.0)(z)
        if not p.isnan().any():
            assert (int(p.argmax()) == 1) == ranks_by_size(named_map(name)), name


def test_sigmoids() -> None:
    rule, exact = rule_of(nn.Sigmoid(), 0.25)
    assert exact
    assert isinstance(rule, ThresholdRule)
    assert float(rule.vector(1)[0]) == pytest.approx(math.log(1 / 3))
    assert rule_of(nn.Softmax(-1), 0.0) == (TopRule(), False)
    for threshold in (0.0, 1.0, -0.5, float("nan")):
        with pytest.raises(RuleError, match="between 0 and 1"):
            rule_of(nn.Sigmoid(), threshold)


def test_maps_that_are_not_known() -> None:
    for map_ in (Own(), nn.LogSoftmax(-1), nn.Identity(), Sparsegen(g=lambda z: -z)):
        with pytest.raises(RuleError, match="name the rule, such as 'threshold:0'"):
            ranks_by_size(map_)
        with pytest.raises(RuleError, match="isn't known"):
            rule_of(map_, 0.0)
    head = MultilabelHead(2, 3, Own(), nn.BCELoss())
    with pytest.raises(RuleError, match="the order that Own keeps"):
        head.label_head()


def test_learned_parameters_as_they_are_now() -> None:
    sparsegen, hourglass = Sparsegen(-1.0, learnable=True), Sparsehourglass(0.5, learnable=True)
    for map_ in (sparsegen, hourglass):
        before = rule_of(map_, 0.0)
        with torch.no_grad():
            for parameter in map_.parameters():
                parameter.add_(1)
        assert rule_of(map_, 0.0) != before
    with torch.no_grad():
        assert rule_of(sparsegen, 0.0) == (SparsegenRule(float(sparsegen.lambda_)), True)
        assert rule_of(hourglass, 0.0) == (SparsehourglassRule(float(hourglass.q)), True)
    one_each = Sparsegen(torch.zeros(3))
    with pytest.raises(RuleError, match="lambda has 3 numbers; expected one"):
        rule_of(one_each, 0.0)
    assert rule_of(Sparsegen(torch.zeros(1)), 0.0) == (SparsegenRule(0.0), True)


def clear(head: MultilabelHead, z: Tensor) -> Tensor:
    """(n,) where no logit or probability is so close to a threshold that rounding decides."""
    p, threshold = head.probabilities(z), float(head.threshold)
    if isinstance(head.map, nn.Sigmoid):
        return ((p - threshold).abs() > 1e-6).all(-1)
    gaps = z.sort(-1).values.diff(dim=-1).abs()
    at_threshold = (p - threshold).abs() < 1e-6 if threshold else (p > 0) & (p < 1e-6)
    return ~at_threshold.any(-1) & (gaps > 1e-6).all(-1) & ~p.isnan().any(-1)


@settings(max_examples=40)
@given(
    name=st.sampled_from([*(n for n in MAP_NAMES if n not in BY_SIZE), "sigmoid", "nn.Softmax"]),
    threshold=st.sampled_from([0.0, 0.05, 0.3]),
    labels=st.integers(1, 8),
    dim=st.integers(1, 4),
    scale=st.sampled_from([0.3, 1.0, 5.0]),
    seed=st.integers(0, 2**31),
)
def test_what_a_head_puts_out_is_never_out_of_reach(
    name: str, threshold: float, labels: int, dim: int, scale: float, seed: int
) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    own = {"sigmoid": nn.Sigmoid(), "nn.Softmax": nn.Softmax(-1)}
    lambda_, q = float(rng.uniform(-4, 0.9)), float(rng.uniform(0.01, 3))
    map_ = own.get(name) or named_map(name, lambda_=lambda_, q=q)
    if name == "sigmoid" and not threshold:
        threshold = 0.5
    head = MultilabelHead(dim, labels, map_, nn.Identity(), threshold=threshold).double()
    x = scale * torch.randn(200, dim, dtype=torch.float64)
    with torch.no_grad():
        z = head(x)
        z, x = z[clear(head, z)], x[clear(head, z)]
        put_out = head.predict(z)
    for domain in ("box:100", "free"):
        report = verify_label_sets(head.label_head(), put_out, domain)
        assert report.counts["unattainable"] == 0, domain


@pytest.mark.parametrize("name", [*EXACT, "sigmoid"])
def test_where_a_rule_is_exact_witnesses_put_their_sets_out(name: str) -> None:
    """Of all sets of 5 labels; what random inputs put out is among those called attainable."""
    torch.manual_seed(0)
    map_ = nn.Sigmoid() if name == "sigmoid" else named_map(name, lambda_=-2.0, q=0.25)
    threshold = 0.5 if name == "sigmoid" else 0.0
    head = MultilabelHead(2, 5, map_, nn.Identity(), threshold=threshold).double()
    sets = torch.tensor(list(itertools.product([False, True], repeat=5)))
    report = verify_label_sets(head.label_head(), sets, "box:30")
    radius = 10.0 ** (4 * torch.rand(20_000, 1, dtype=torch.float64) - 3)
    x = (radius * torch.randn(20_000, 2, dtype=torch.float64)).clamp(-30, 30)
    with torch.no_grad():
        found = {tuple(row) for row in head.predict(head(x)).unique(dim=0).tolist()}
        called = np.flatnonzero(report.status == SetStatus.ATTAINABLE).tolist()
        for index in called:
            proof = report.proof_of(index)
            assert isinstance(proof, SetWitness)
            assert torch.equal(head.predict(head(torch.tensor(proof.point))), sets[index])
    assert found <= {tuple(sets[index].tolist()) for index in called}
    assert report.counts["undecided"] == 0
    assert 2 < len(found) <= len(called) < 32


def test_names_and_gradients() -> None:
    head = MultilabelHead.named("sparsemax+huber", in_features=2, num_labels=3)
    found = head.label_head(names=["a", "b", "c"])
    assert found.names == ("a", "b", "c")
    before = head.linear.weight.detach().clone()
    verify_label_sets(found, [[0]])
    assert torch.equal(head.linear.weight, before)
    assert head.linear.weight.grad is None


def test_a_map_along_another_dimension_is_refused() -> None:
    with pytest.raises(RuleError, match="along dimension 0"):
        ranks_by_size(named_map("sparsemax", dim=0))
    assert not ranks_by_size(nn.Softmax(1))
