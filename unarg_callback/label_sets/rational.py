"""Certificates over the free domain, where a combination must cancel every feature exactly."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from unarg_callback.geometry.rounding import SMALLEST_NORMAL, gamma
from unarg_callback.label_sets.enclosure import enclosed_solution, float_rows
from unarg_callback.label_sets.problem import Array, Problem
from unarg_callback.label_sets.rules import SparsegenRule, SparsehourglassRule, ThresholdRule

_WORK = 200_000
"""Most integer operations in one elimination; more is left unproven."""

Integers = list[int]


class FreeProver:
    """Proves combinations over the free domain, of inequalities that are named.

    Args:
        problem: the inequalities.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        rule = problem.head.rule
        self._rows: dict[int, Integers] = {}
        self._thresholds: list[float] | None = None
        if isinstance(rule, ThresholdRule):
            self._thresholds = rule.vector(problem.labels).tolist()

    def bound(
        self, labels: NDArray[np.bool_], sign: int, support: NDArray[np.int64], signed: bool
    ) -> tuple[Array, float, float] | None:
        """Solve for the weights of the inequalities named, and bound the margin.

        The weights solve ``sum_i weight_i a_i = 0, sum_i weight_i = 1`` with the rows a_i of the
        inequalities. The proof is that the exact solution exists, is unique, and has no negative
        entry; every margin is then at most ``sum_i weight_i beta_i``. The condition on the sum of
        z, where it takes part, has no share in the sum of the weights; alone it must be negative
        everywhere.

        Args:
            labels: (K,) bool.
            sign: of the sum of z.
            support: (m,) int64, labels.
            signed: whether the condition takes part.

        Returns:
            (m,) float64 weights, the weight of the condition, and the bound in units of the logits;
            None where it isn't proven.
        """
        problem = self.problem
        count, most = len(support) + signed, problem.variables + 1
        if not 0 < count <= most or (signed and not problem.slope):
            return None
        if count == most and len(support):
            found = self._enclosed(labels, sign, support, signed)
            if found is not None:
                return found
        reads = len(support) + (int(labels.sum()) if problem.gap is not None else 0)
        if most * count * count > _WORK or reads * problem.head.dim > 10 * _WORK:
            return None
        return self._exact(labels, sign, support, signed)

    def exact_rows(
        self, labels: NDArray[np.bool_], sign: int, support: NDArray[np.int64], signed: bool
    ) -> tuple[list[Integers], int]:
        """Exact rows ``(a_i, beta_i)``, m of v + 1 entries, of ``r_i = a_i . x + beta_i``.

        All are multiples of one number, which is returned too. The condition on the sum of z comes
        last, if it takes part. Where t is a variable it is the last of the v.
        """
        problem, one = self.problem, self._denominator
        scale, shift = 1, [0] * (problem.head.dim + 1)
        total = self._total if problem.slope else shift
        if isinstance(rule := problem.head.rule, SparsegenRule | SparsehourglassRule):
            constant, slope = _exact_gap(rule, problem.labels)
            members = np.flatnonzero(labels).tolist()
            common = math.lcm(constant.denominator, slope.denominator)
            scale = len(members) * common
            factor = sign * int(slope * common)
            shift = [
                factor * t - common * v for v, t in zip(self._sum(members), total, strict=True)
            ]
            shift[-1] += int(constant * common) * one
        rows = []
        for index in support.tolist():
            side = 1 if labels[index] else -1
            row = [side * (scale * v + s) for v, s in zip(self._row(index), shift, strict=True)]
            if problem.ordered:
                row.insert(-1, -side * one)
            rows.append(row)
        if signed:
            rows.append([sign * scale * v for v in total])
        return rows, scale * one

    @cached_property
    def _denominator(self) -> int:
        """The power of two that makes integers of all entries."""
        head = self.problem.head
        arrays = [head.weight, head.bias, np.array(self._thresholds or [0.0])]
        values = np.concatenate([array.ravel() for array in arrays])
        exponent = np.frexp(values[values != 0])[1].min(initial=54)
        return int(2 ** max(0, 53 - int(exponent)))

    def _row(self, index: int) -> Integers:
        """Row and bias of a label, less its threshold, times the denominator."""
        if index not in self._rows:
            head = self.problem.head
            values = [*head.weight[index].tolist(), float(head.bias[index])]
            row = [self._integer(value) for value in values]
            if self._thresholds is not None:
                row[-1] -= self._integer(self._thresholds[index])
            self._rows[index] = row
        return self._rows[index]

    def _integer(self, value: float) -> int:
        above, below = value.as_integer_ratio()
        return above * (self._denominator // below)

    def _sum(self, indices: list[int]) -> Integers:
        return [sum(values) for values in zip(*map(self._row, indices), strict=True)]

    @cached_property
    def _total(self) -> Integers:
        return self._sum(list(range(self.problem.labels)))

    def _enclosed(
        self, labels: NDArray[np.bool_], sign: int, support: NDArray[np.int64], signed: bool
    ) -> tuple[Array, float, float] | None:
        """By a verified linear solve in float64, for as many inequalities as unknowns."""
        rows = float_rows(self.problem, labels, sign, support, signed)
        shares = np.append(np.ones(len(support)), np.zeros(int(signed)))
        enclosure = enclosed_solution(
            np.vstack([rows.slope.T, shares]), np.vstack([rows.slope_error.T, 0 * shares])
        )
        if enclosure is None or not (enclosure[0] - enclosure[1] >= 0).all():
            return None
        weight, error = enclosure
        condition = float(weight[-1]) if signed else 0.0
        known = weight[: len(support)], condition
        if not (rows.constant.any() or rows.constant_error.any()):
            return *known, 0.0
        size, reach = np.abs(rows.constant) + rows.constant_error, np.abs(weight) + error
        bound = weight @ rows.constant + np.abs(rows.constant) @ error
        bound += rows.constant_error @ reach + gamma(len(weight) + 8) * (size @ reach)
        bound = (bound + 8 * len(weight) * SMALLEST_NORMAL[torch.float64]) * self.problem.unit
        return (*known, float(bound)) if bound <= self.problem.min_margin else None

    def _exact(
        self, labels: NDArray[np.bool_], sign: int, support: NDArray[np.int64], signed: bool
    ) -> tuple[Array, float, float] | None:
        rows, scale = self.exact_rows(labels, sign, support, signed)
        alone = not len(support)
        shares = [1] * len(support) + [int(alone)] * signed
        system = [[*values, 0] for values in zip(*(row[:-1] for row in rows), strict=True)]
        found = solve([*system, [*shares, 1]], len(rows))
        if found is None or min(found[0]) < 0:
            return None
        weight, denominator = found
        value = sum(w * row[-1] for w, row in zip(weight, rows, strict=True))
        near = np.array([float(Fraction(w, denominator)) for w in weight])
        condition = float(near[-1]) if signed else 0.0
        if alone:
            return (near[:0], condition, -math.inf) if value < 0 else None
        exact = Fraction(value, denominator * scale)
        bound = float(exact)
        bound = bound if Fraction(bound) >= exact else math.nextafter(bound, math.inf)
        return near[: len(support)], condition, bound


def _exact_gap(rule: SparsegenRule | SparsehourglassRule, labels: int) -> tuple[Fraction, Fraction]:
    if isinstance(rule, SparsegenRule):
        return 1 - Fraction(rule.lambda_), Fraction(0)
    if math.isinf(rule.q * labels):
        return Fraction(1), Fraction(0)
    reach = labels * Fraction(rule.q)
    return reach / (1 + reach), 1 / (1 + reach)


def solve(system: list[Integers], unknowns: int) -> tuple[Integers, int] | None:
    """Solve a consistent system of full column rank by Bareiss's fraction-free elimination.

    Args:
        system: equations, the right-hand side last in each.
        unknowns: their number.

    Returns:
        The solution times a positive number, and that number; None where there is no solution or
        more than one.

    >>> solve([[1, 1, 4], [2, -1, 0]], 2)
    ([4, 8], 3)
    """
    previous = 1
    for at in range(unknowns):
        pivot = next((i for i in range(at, len(system)) if system[i][at]), None)
        if pivot is None:
            return None
        system[at], system[pivot] = system[pivot], system[at]
        top = system[at]
        head = top[at]
        for i, equation in enumerate(system):
            if i != at:
                factor = equation[at]
                system[i] = [
                    (value * head - factor * above) // previous
                    for value, above in zip(equation, top, strict=True)
                ]
        previous = head
    if any(equation[unknowns] for equation in system[unknowns:]):
        return None
    sign = 1 if previous > 0 else -1
    return [sign * equation[unknowns] for equation in system[:unknowns]], sign * previous
