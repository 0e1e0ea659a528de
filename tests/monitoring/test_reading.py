"""How logits are read: as the user says, or as a multilabel head tells."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unarg_callback.errors import LayerError, UnargError
from unarg_callback.heads import MultilabelHead
from unarg_callback.heads.named_maps import MAP_NAMES, named_map
from unarg_callback.label_sets import (
    RuleError,
    SparsegenRule,
    SparsehourglassRule,
    ThresholdRule,
    TopRule,
)
from unarg_callback.monitoring.reading import (
    Reading,
    given_rule,
    linear_of,
    multilabel_of,
    reading_of,
)
from unarg_callback.snapshots.snapshot import find_layer


def head_of(map_: nn.Module, threshold: float = 0.0) -> MultilabelHead:
    return MultilabelHead(2, 3, map_, nn.Identity(), threshold=threshold)


class TestGivenRule:
    @pytest.mark.parametrize(
        ("text", "rule"),
        [
            ("top", TopRule()),
            (" sparsemax ", SparsegenRule(0.0)),
            ("sparsegen:-3", SparsegenRule(-3.0)),
            ("sparsehourglass: 0.5", SparsehourglassRule(0.5)),
            ("absolute", "absolute"),
            (None, None),
            (TopRule(), TopRule()),
        ],
    )
    def test_read(self, text: Any, rule: Any) -> None:
        assert given_rule(text) == rule

    @pytest.mark.parametrize(("text", "level"), [("threshold", 0.0), ("threshold:-1.5", -1.5)])
    def test_thresholds(self, text: str, level: float) -> None:
        rule = given_rule(text)
        assert isinstance(rule, ThresholdRule)
        assert rule.vector(2).tolist() == [level, level]

    @pytest.mark.parametrize(
        "value", ["", "softmax", "threshold:x", "sparsegen", "sparsegen:", "top:1", "sparsemax:0"]
    )
    def test_names_of_no_rule(self, value: str) -> None:
        with pytest.raises(RuleError, match="expected"):
            given_rule(value)

    @pytest.mark.parametrize(
        ("value", "told"),
        [("sparsegen:1", "below 1"), ("sparsehourglass:-1", "from 0"), ("threshold:inf", "finite")],
    )
    def test_parameters_out_of_range(self, value: str, told: str) -> None:
        with pytest.raises(RuleError, match=told):
            given_rule(value)

    @pytest.mark.parametrize("value", [3, True, ["top"], TopRule])
    def test_no_rule(self, value: Any) -> None:
        with pytest.raises(UnargError, match="rule is"):
            given_rule(value)


class TestReadingOf:
    @pytest.mark.parametrize("name", MAP_NAMES)
    def test_named_maps(self, name: str) -> None:
        exact = ("sparsemax", "sparsegen_lin", "sparsehourglass", "sum_normalization_pp")
        found = reading_of(None, head_of(named_map(name)))
        assert found.by_size == (name in ("spherical_softmax", "sparsegen_sq"))
        assert (found.rule is None) == found.by_size
        assert found.exact == (name in exact)
        above = reading_of(None, head_of(named_map(name), threshold=0.1))
        assert not above.exact
        assert above.rule == (None if found.by_size else TopRule())

    def test_of_torch(self) -> None:
        assert reading_of(None, head_of(nn.Softmax(-1))) == Reading(False, TopRule(), False)
        found = reading_of(None, head_of(nn.Sigmoid(), 0.5))
        assert found.exact
        assert isinstance(found.rule, ThresholdRule)
        assert found.rule.vector(1).tolist() == [0.0]

    def test_without_a_head_it_is_a_sigmoid(self) -> None:
        found = reading_of(None, None)
        assert (found.by_size, found.exact) == (False, True)
        assert isinstance(found.rule, ThresholdRule)

    def test_what_the_user_says_comes_first(self) -> None:
        class Own(nn.Module):
            def forward(self, z: Tensor) -> Tensor:
                return z

        for head in (head_of(Own()), head_of(named_map("spherical_softmax")), None):
            assert reading_of(TopRule(), head) == Reading(False, TopRule(), True)
            assert reading_of("absolute", head) == Reading(True, None, False)
        with pytest.raises(RuleError, match="Own"):
            reading_of(None, head_of(Own()))


class Net(nn.Module):
    def __init__(self, *heads: nn.Module) -> None:
        super().__init__()
        self.body = nn.Linear(4, 2)
        self.heads = nn.ModuleList(heads)


class TestLayers:
    def test_a_head_stands_for_its_linear(self) -> None:
        head = head_of(nn.Sigmoid(), 0.5)
        net = Net(head)
        assert linear_of(net, "heads.0") == ("heads.0.linear", "heads.0")
        assert linear_of(net, head) == (head.linear, "heads.0")
        assert linear_of(net, None) == ("heads.0.linear", "heads.0")
        assert linear_of(head, None) == ("linear", "")
        assert linear_of(net, "body") == ("body", None)
        assert linear_of(net, "heads.0.linear") == ("heads.0.linear", None)
        assert linear_of(Net(nn.Linear(2, 9)), None) == (None, None)
        two = Net(head, head_of(nn.Sigmoid(), 0.5))
        assert linear_of(two, None) == (None, None)
        with pytest.raises(LayerError):
            linear_of(net, "nothing.there")

    @pytest.mark.parametrize("path", ["heads.0", "heads.0.linear"])
    def test_the_head_of_a_layer(self, path: str) -> None:
        head = head_of(nn.Sigmoid(), 0.5)
        net = Net(head)
        assert multilabel_of(find_layer(net, linear_of(net, path)[0])) is head
        assert multilabel_of(find_layer(net, linear_of(net, head)[0])) is head
        assert multilabel_of(find_layer(net, "body")) is None
        assert multilabel_of(find_layer(net, lambda model: head.linear.weight)) is None

    def test_a_head_in_a_wrapper(self) -> None:
        head = head_of(nn.Sigmoid(), 0.5)
        nn.utils.parametrizations.weight_norm(head.linear)
        assert multilabel_of(find_layer(Net(head), "heads.0.linear")) is head
        compiled = Net(head)
        compiled.heads[0] = torch.compile(head, backend="eager")  # type: ignore[assignment]
        choice, _ = linear_of(compiled, "heads.0")
        assert multilabel_of(find_layer(compiled, choice)) is head
