"""How the logits of a head are read: whose is the largest, and which labels are put out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from unarg_callback.errors import UnargError
from unarg_callback.heads.multilabel import MultilabelHead
from unarg_callback.heads.rule import ranks_by_size, rule_of
from unarg_callback.label_sets.rules import Rule, RuleError, ThresholdRule, parse_rule
from unarg_callback.snapshots.found import FoundLayer
from unarg_callback.snapshots.places import place_at, walk

ABSOLUTE = "absolute"
_RANKED = "classes are ranked by |z|, and no rule is known that makes sets of them"


@dataclass(frozen=True)
class Reading:
    """How logits are read.

    Args:
        by_size: whether classes are ranked by ``|z|``.
        rule: how a label set is made, or None where there is no rule.
        exact: whether the head puts out just what the rule says; else only such sets.
        reason: why there is no rule.
    """

    by_size: bool
    rule: Rule | None
    exact: bool
    reason: str = field(default="", compare=False)


def given_rule(value: Any) -> Rule | str | None:
    """A rule, "absolute", or None for what the head itself tells.

    Raises:
        UnargError: it is none of these, nor the name of one.

    >>> given_rule("sparsemax"), given_rule("absolute")
    (SparsegenRule(lambda_=0.0), 'absolute')
    """
    if value is None or isinstance(value, Rule):
        return value
    if not isinstance(value, str):
        raise UnargError(f"rule is {value!r}; expected its name, such as 'threshold:0', or a rule")
    return ABSOLUTE if value.strip() == ABSOLUTE else parse_rule(value)


def reading_of(rule: Rule | str | None, head: MultilabelHead | None) -> Reading:
    """How the logits of a head are read now.

    Args:
        rule: what the user said, as :func:`given_rule` has it.
        head: what the layer is the ``linear`` of, or None.

    Raises:
        UnargError: the head's map is of a kind whose order isn't known.
    """
    if isinstance(rule, str):
        return Reading(True, None, False, _RANKED)
    if rule is not None:
        return Reading(False, rule, True)
    if head is None:
        return Reading(False, ThresholdRule(), True)
    if ranks_by_size(head.map):
        return Reading(True, None, False, _RANKED)
    try:
        found, exact = rule_of(head.map, float(head.threshold))
    except RuleError as cause:
        return Reading(False, None, False, str(cause))
    return Reading(False, found, exact)


def linear_of(model: nn.Module, choice: Any) -> tuple[Any, str | None]:
    """A choice of layer, with that of a :class:`MultilabelHead` turned into its linear layer.

    Args:
        model: holds the layer.
        choice: a path, module, function or None: then the only such head, if there is one.

    Returns:
        The choice, and the head's path where it was one.

    Raises:
        LayerError: nothing is at the path.
    """
    path: str | None = None
    if isinstance(choice, MultilabelHead):
        path = next((place.path for place in walk(model) if place.inner is choice), "")
        return choice.linear, path
    if isinstance(choice, str):
        place = place_at(model, choice)
        path = place.path if isinstance(place.inner, MultilabelHead) else None
    elif choice is None:
        heads = [place.path for place in walk(model) if isinstance(place.inner, MultilabelHead)]
        path = heads[0] if len(heads) == 1 else None
    return (choice, None) if path is None else (f"{path}.linear".lstrip("."), path)


def multilabel_of(found: FoundLayer) -> MultilabelHead | None:
    """The head that a layer is the ``linear`` of, or None."""
    place = found.place
    owner = None if place is None or place.parent is None else place.parent.inner
    if place is None or not isinstance(owner, MultilabelHead):
        return None
    return owner if any(owner.linear is level for level in place.levels) else None
