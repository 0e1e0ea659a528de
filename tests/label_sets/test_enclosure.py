"""Enclosures of solutions hold the exact ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.label_sets.exact_simplex import rational
from tests.label_sets.heads import RULES, normal_head
from tests.label_sets.oracle import inequalities, logits, signs_of, total
from unarg_callback import Domain
from unarg_callback.label_sets import Rule, TopRule
from unarg_callback.label_sets.enclosure import enclosed_solution, float_rows
from unarg_callback.label_sets.problem import Problem
from unarg_callback.label_sets.rational import FreeProver, solve


def test_an_enclosure_holds_the_solution_of_every_matrix_within_the_errors() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 9):
        matrix = rng.normal(size=(size, size)) * 10.0 ** rng.integers(-6, 6, size=(size, 1))
        error = np.abs(matrix) * 1e-12
        found = enclosed_solution(matrix, error)
        assert found is not None
        for _ in range(4):
            near = matrix + error * rng.uniform(-0.99, 0.99, size=matrix.shape)
            exact = solve(
                [
                    [*_integers(row), int(i == size - 1) * 2**200]
                    for i, row in enumerate(near.tolist())
                ],
                size,
            )
            assert exact is not None
            for value, at, bound in zip(exact[0], *found, strict=True):
                gap = abs(Fraction(value, exact[1]) - Fraction(float(at)))
                assert gap <= Fraction(float(bound))


def _integers(row: list[float]) -> list[int]:
    return [int(Fraction(value) * 2**200) for value in row]


def test_a_singular_matrix_has_no_enclosure() -> None:
    matrix = np.array([[1.0, 2.0], [2.0, 4.0]])
    assert enclosed_solution(matrix, 0 * matrix) is None
    assert enclosed_solution(np.eye(2), np.ones((2, 2))) is None


def test_systems_without_or_with_many_solutions_are_refused() -> None:
    assert solve([[1, 1, 1], [1, 1, 2]], 2) is None
    assert solve([[1, 1, 1]], 2) is None
    assert solve([[1, 1], [2, 3]], 1) is None
    assert solve([[0, 2, 4], [-3, 0, 6]], 2) == ([-12, 12], 6)


@pytest.mark.parametrize("rule", [r for r in RULES if not isinstance(r, TopRule)], ids=str)
def test_rows_are_exact_within_their_errors(rule: Rule) -> None:
    head = normal_head(np.random.default_rng(1), 7, 3, rule)
    problem = Problem(head, Domain.free())
    labels = np.array([True, False, True, True, False, False, False])
    support = np.array([0, 1, 2, 5])
    signed = bool(problem.slope)
    members = np.flatnonzero(labels).tolist()
    for sign in signs_of(head):
        wanted = [inequalities(head, members, sign)[i] for i in support.tolist()]
        if signed:
            wanted.append(total(logits(head)).times(rational(sign)))
        rows = float_rows(problem, labels, sign, support, signed)
        exact, scale = FreeProver(problem).exact_rows(labels, sign, support, signed)
        for at, form in enumerate(wanted):
            assert [rational(Fraction(v, scale)) for v in exact[at]] == [*form.slope, form.constant]
            near = [*rows.slope[at].tolist(), float(rows.constant[at])]
            error = [*rows.slope_error[at].tolist(), float(rows.constant_error[at])]
            unit = rational(problem.unit)
            for a, b, e in zip([*form.slope, form.constant], near, error, strict=True):
                assert abs(a / unit - rational(b)) <= rational(e)
                assert e <= 1e-13
