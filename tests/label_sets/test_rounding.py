"""Bounds hold against exact arithmetic, also where scales differ wildly."""

from __future__ import annotations

import numpy as np
import pytest

from tests.label_sets.exact_simplex import rational
from tests.label_sets.heads import RULES
from tests.label_sets.oracle import exact_margin, exact_upper_bound
from unarg_callback import Domain
from unarg_callback.label_sets import Combination, LabelHead, Rule, TopRule
from unarg_callback.label_sets.checker import SetChecker
from unarg_callback.label_sets.problem import Problem


def wild_head(rng: np.random.Generator, rule: Rule) -> LabelHead:
    weight = rng.normal(size=(7, 3)) * 10.0 ** rng.integers(-9, 5, size=(7, 3))
    weight += float(rng.choice([0.0, 1e6]))
    return LabelHead(weight, rng.normal(size=7) * 10.0 ** rng.integers(-9, 5, size=7), rule)


def some_sets(rng: np.random.Generator, count: int) -> np.ndarray:
    sets = rng.random((count, 7)) < 0.5
    sets[:, 0], sets[:, -1] = True, False
    return sets


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_margins_are_bounded_from_below(rule: Rule) -> None:
    rng = np.random.default_rng(0)
    for _ in range(6):
        head = wild_head(rng, rule)
        checker = SetChecker(Problem(head, Domain.box(1e9)))
        sets = some_sets(rng, 12)
        points = rng.normal(size=(12, 3)) * 10.0 ** rng.integers(-6, 8, size=(12, 3))
        _, lower = checker.margins(sets, points)
        size = np.abs(points) @ np.abs(head.weight).sum(0) + np.abs(head.bias).sum() + 10
        for labels, point, found, scale in zip(sets, points, lower, size, strict=True):
            exact = exact_margin(head, labels, point)
            assert rational(found) <= exact
            assert exact - rational(found) <= rational(1e-13 * scale)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_combinations_are_bounded_from_above(rule: Rule) -> None:
    rng = np.random.default_rng(1)
    low, high = np.array([-3.0, 0.0, -1e-3]), np.array([7.0, 1e4, 1e-3])
    domain = Domain.box(low, high)
    for _ in range(6):
        head = wild_head(rng, rule)
        problem = Problem(head, domain)
        checker, sets = SetChecker(problem), some_sets(rng, 8)
        weights = rng.random((8, 7)) * 10.0 ** rng.integers(-6, 3, size=(8, 7))
        condition = rng.random(8) if problem.slope else np.zeros(8)
        for sign in problem.signs:
            _, bound = checker.certificates(sets, sign, weights, condition)
            for at, labels in enumerate(sets):
                part = Combination(np.arange(7), weights[at], float(condition[at]))
                exact = exact_upper_bound(head, labels, part, sign, domain)
                assert rational(bound[at]) >= exact
                mass = 1.0 if isinstance(rule, TopRule) else weights[at].sum()
                reach = np.maximum(np.abs(low), np.abs(high))
                size = reach @ np.abs(head.weight).sum(0) + np.abs(head.bias).sum() + 10
                loose = 1e-13 * size * (weights[at].sum() * 3 + condition[at] + mass) / mass
                assert rational(bound[at]) - exact <= rational(float(loose))
