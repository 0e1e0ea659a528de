"""A multilabel head, and the label sets that are asked about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unarg_callback.errors import UnargError
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.label_sets.rules import Rule, RuleError, ThresholdRule, parse_rule


class LabelSetError(UnargError):
    """Label sets don't fit the head."""


class LabelHead:
    """The head ``z = W x + b`` of K labels, and the rule that makes a label set of z.

    Args:
        weight: (K, d), as :class:`~unarg_callback.OutputLayer` takes it.
        bias: (K,) or None.
        rule: how logits become a set, or its name, as :func:`parse_rule` reads it.
        names: K label names, or None.

    Raises:
        LayerError: weight, bias and names don't make a layer.
        RuleError: there is no such rule, or it is for another number of labels.

    >>> LabelHead([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], rule=ThresholdRule(0.5))
    LabelHead(3 labels x 2 features, threshold 0.5)
    """

    def __init__(
        self,
        weight: Tensor | ArrayLike,
        bias: Tensor | ArrayLike | None = None,
        rule: Rule | str | None = None,
        *,
        names: Sequence[str] | None = None,
    ) -> None:
        layer = OutputLayer(weight, bias, names=names)
        layer.require_plain_values()
        if isinstance(rule, str):
            rule = parse_rule(rule)
        if not (rule is None or isinstance(rule, Rule)):
            raise RuleError(f"rule is {rule!r}; expected its name, such as 'top', or a rule")
        self.rule: Rule = ThresholdRule() if rule is None else rule
        if isinstance(self.rule, ThresholdRule):
            self.rule.vector(layer.classes)
        everyone = slice(None)
        self.weight: NDArray[np.float64] = layer.rows(everyone).cpu().numpy().copy()
        """(K, d) float64, an exact upcast; a copy."""
        self.bias: NDArray[np.float64] = layer.biases(everyone).cpu().numpy().copy()
        """(K,) float64, likewise."""
        self.names = layer.names

    @property
    def labels(self) -> int:
        """K."""
        return len(self.weight)

    @property
    def dim(self) -> int:
        """d, the number of features."""
        return self.weight.shape[1]

    def name(self, index: int) -> str:
        """Name of a label, or its id as text."""
        return str(index) if self.names is None else self.names[index]

    def __repr__(self) -> str:
        return f"LabelHead({self.labels} labels x {self.dim} features, {self.rule})"


def as_sets(
    sets: Tensor | NDArray[np.generic] | Iterable[Iterable[int]], labels: int
) -> NDArray[np.bool_]:
    """(n, K) bool from a multi-hot array or tensor, or from lists of label ids.

    Raises:
        LabelSetError: they are neither, or not for K labels.

    >>> as_sets([[0, 2], []], 3)
    array([[ True, False,  True],
           [False, False, False]])
    """
    if isinstance(sets, str | Mapping) or not isinstance(sets, Tensor | Iterable):
        raise LabelSetError(
            f"label sets are of type {type(sets).__name__}; expected multi-hot, or lists of label "
            "ids"
        )
    if isinstance(sets, Tensor) and sets.layout != torch.strided:
        sets = sets.to_dense()
    if isinstance(sets, Tensor):
        sets = sets.detach().cpu().to(torch.float32 if sets.is_floating_point() else sets.dtype)
        sets = sets.numpy()
    if isinstance(sets, np.ndarray):
        if sets.ndim != 2 or sets.shape[1] != labels:
            raise LabelSetError(
                f"label sets have shape {sets.shape}; expected (n, {labels}), one column a label"
            )
        if sets.dtype != np.bool_ and not np.isin(sets, (0, 1)).all():
            raise LabelSetError("label sets hold other values than 0 and 1; expected multi-hot")
        return sets.astype(np.bool_)
    try:
        listed = [list(one) for one in sets]
    except TypeError as cause:
        raise LabelSetError(
            f"a label set is no list of ids ({cause}); expected multi-hot, or lists of label ids"
        ) from cause
    found = np.zeros((len(listed), labels), dtype=np.bool_)
    for row, members in zip(found, listed, strict=True):
        wrong = [
            i for i in members if isinstance(i, bool | np.bool_) or not hasattr(i, "__index__")
        ]
        wrong += [i for i in members if i not in wrong and not 0 <= int(i) < labels]
        if wrong:
            raise LabelSetError(
                f"a label set holds {wrong[0]!r}; expected label ids from 0 to {labels - 1}"
            )
        row[[int(i) for i in members]] = True
    return found
