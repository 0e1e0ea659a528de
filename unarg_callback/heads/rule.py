"""How a multilabel head reads its logits, as the checks of classes and label sets need to know."""

from __future__ import annotations

import math

from torch import Tensor, nn

from unarg_callback.activations import (
    Softmax,
    Sparsecone,
    Sparsegen,
    Sparsehourglass,
    Sparsemax,
    SphericalSoftmax,
    SumNormalization,
    SumNormalizationPP,
)
from unarg_callback.label_sets.rules import (
    Rule,
    RuleError,
    SparsegenRule,
    SparsehourglassRule,
    ThresholdRule,
    TopRule,
)

_ORDERED = (Softmax, nn.Softmax, Sparsecone, SumNormalization)
_KNOWN = "name the rule, such as 'threshold:0' or 'top', or 'absolute' for maps that rank by |z|"


def ranks_by_size(map: nn.Module) -> bool:
    """Whether a map ranks classes by ``|z|``, as spherical softmax and sparsegen-sq do.

    Args:
        map: of scores to probabilities.

    Raises:
        RuleError: it is none of this package or torch, has a transformation of its own, or works
            along another dimension than the last, so that its order isn't known.
    """
    if getattr(map, "dim", -1) not in (-1, 1):
        raise RuleError(
            f"{type(map).__name__} works along dimension {getattr(map, 'dim', -1)}; expected -1, "
            f"the dimension of the labels, or {_KNOWN}"
        )
    if isinstance(map, SphericalSoftmax):
        return True
    if isinstance(map, Sparsegen):
        if callable(map.g):
            raise RuleError(f"the order that sparsegen keeps with its own g isn't known: {_KNOWN}")
        return map.g == "sq"
    known = (*_ORDERED, nn.Sigmoid, Sparsemax, Sparsehourglass, SumNormalizationPP)
    if not isinstance(map, known):
        raise RuleError(f"the order that {type(map).__name__} keeps isn't known: {_KNOWN}")
    return False


def rule_of(map: nn.Module, threshold: float) -> tuple[Rule, bool]:
    """How a map and a threshold on its probabilities make a label set.

    Args:
        map: of scores to probabilities, with its parameters as they are now.
        threshold: labels with a probability above it are put out.

    Returns:
        The rule, and whether it is exact. Where it isn't, it is :class:`TopRule`, which all maps
        obey that keep the order of the scores: what it proves out of reach is.

    Raises:
        RuleError: sets have no rule (maps that rank by ``|z|``), or the map's order isn't known, or
            its parameter isn't one number.
    """
    if ranks_by_size(map):
        raise RuleError("no rule for label sets is known for maps that rank by |z|")
    if isinstance(map, nn.Sigmoid):
        if not 0 < threshold < 1:
            raise RuleError(
                f"the head's threshold is {threshold:g}, at which a sigmoid puts out always the "
                "same labels; expected one between 0 and 1"
            )
        return ThresholdRule(math.log(threshold) - math.log1p(-threshold)), True
    if threshold == 0:
        if isinstance(map, Sparsemax):
            return SparsegenRule(0.0), True
        if isinstance(map, Sparsegen) and map.g == "lin":
            return SparsegenRule(_number("lambda", map.lambda_)), True
        if isinstance(map, Sparsehourglass):
            return SparsehourglassRule(_number("q", map.q)), True
        if isinstance(map, SumNormalizationPP):
            return SparsehourglassRule(0.0), True
    return TopRule(), False


def _number(name: str, value: float | Tensor) -> float:
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise RuleError(f"{name} has {value.numel()} numbers; expected one for the whole head")
        return float(value.detach())
    return float(value)
