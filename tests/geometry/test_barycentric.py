"""Free-domain certificates against FLINT's rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from unarg_callback.geometry.barycentric import barycentric_bound, coordinates_enclosure

Floats = NDArray[np.float64]


def bound(rows: ArrayLike, row: ArrayLike, biases: ArrayLike | None = None, bias: float = 0.0):  # noqa: ANN201
    points = np.array(rows, dtype=float)
    offsets = np.zeros(len(points)) if biases is None else np.array(biases, dtype=float)
    return barycentric_bound(points, offsets, np.array([row], dtype=float), np.array([bias]))


def exact_coordinates(rows: Floats, row: Floats) -> list[Fraction] | None:
    """Solution of the square system, None where it is singular."""
    columns = [[*map(Fraction, point), Fraction(1)] for point in rows.tolist()]
    right = [*map(Fraction, row.tolist()), Fraction(1)]
    size = len(rows)
    matrix = flint.fmpq_mat(
        size,
        size,
        [flint.fmpq(c[k].numerator, c[k].denominator) for k in range(size) for c in columns],
    )
    vector = flint.fmpq_mat(size, 1, [flint.fmpq(r.numerator, r.denominator) for r in right])
    try:
        solved = matrix.solve(vector)
    except ZeroDivisionError:
        return None
    return [Fraction(int(solved[k, 0].p), int(solved[k, 0].q)) for k in range(size)]


@st.composite
def simplices(draw: st.DrawFn) -> tuple[Floats, Floats, int]:
    """d + 1 rows and a combination of them, well or badly conditioned; how badly, as a power."""
    dim = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = rng.normal(size=(dim + 1, dim))
    flat = draw(st.integers(0, 16))
    # Pressed towards a hyperplane by 10**-flat.
    normal = rng.normal(size=dim)
    normal /= np.linalg.norm(normal)
    rows -= np.outer(rows @ normal, normal) * (1 - 10.0**-flat)
    rows += draw(st.sampled_from([0.0, 50.0]))
    rows *= 10.0 ** draw(st.integers(-30, 30))
    share = rng.dirichlet(np.ones(dim + 1)) + draw(st.sampled_from([0.0, 0.3])) * rng.normal()
    return rows, (share / share.sum()) @ rows, flat


@settings(deadline=None, print_blob=True, max_examples=200)
@given(simplices())
def test_the_enclosure_contains_the_exact_coordinates(simplex: tuple[Floats, Floats, int]) -> None:
    rows, row, flat = simplex
    found = coordinates_enclosure(rows, row)
    truth = exact_coordinates(rows, row)
    if found is None:
        assert flat >= 6 or not np.isfinite(rows).all()
        return
    assert truth is not None
    for value, solution, error in zip(truth, *found, strict=True):
        assert abs(value - Fraction(float(solution))) <= Fraction(float(error))
    # It is worth something: an error of 1 would enclose everything.
    if flat == 0:
        assert found[1].max() < 1e-7


@settings(deadline=None, print_blob=True, max_examples=100)
@given(simplices(), st.booleans())
def test_a_bound_means_that_the_row_is_in_the_simplex(
    simplex: tuple[Floats, Floats, int], with_bias: bool
) -> None:
    rows, row, flat = simplex
    rng = np.random.default_rng(0)
    biases = rng.normal(size=len(rows)) * with_bias
    found = bound(rows, row, biases, 0.5 * with_bias)
    truth = exact_coordinates(rows, row)
    if truth is None or min(truth) < 0:
        assert found is None
        return
    # Decided, whatever the conditioning: what floats can't, rationals can.
    assert found is not None
    exact = sum(
        w * (Fraction(0.5 * with_bias) - Fraction(float(b)))
        for w, b in zip(truth, biases, strict=True)
    )
    assert Fraction(found) >= exact
    if flat == 0:
        assert float(Fraction(found) - exact) <= 1e-6
    if not with_bias:
        assert found == 0.0


def test_ill_conditioned_simplices_are_left_to_rationals() -> None:
    flat = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0 + 1e-15]])
    centre = flat.sum(0) / 4 + flat[1] / 4
    assert coordinates_enclosure(flat, centre) is None
    singular = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    assert coordinates_enclosure(singular, singular[1]) is None
    assert bound(singular, singular[1]) is None  # Affinely dependent: more than one solution.
    assert coordinates_enclosure(np.zeros((3, 2)), np.zeros(2)) is None


TRIANGLE = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
HAIR = 2.0**-52


@pytest.mark.parametrize(
    ("row", "inside"),
    [
        ([0.25, 0.25], True),
        ([0.5, 0.5], True),  # On a face.
        ([0.5, 0.0], True),
        ([0.0, 0.0], True),  # A vertex.
        ([1.0, 0.0], True),
        ([0.5, 0.5 + HAIR], False),
        ([0.5 - HAIR, 0.5 + HAIR], True),
        ([0.5, -5e-324], False),
        ([-1e-300, 0.0], False),
        ([1.0 + HAIR, 0.0], False),
        ([0.5, 5e-324], True),
        ([2.0, 2.0], False),
    ],
)
def test_on_the_boundary_a_hair_decides(row: list[float], inside: bool) -> None:
    assert bound(TRIANGLE, row) == (0.0 if inside else None)


@settings(deadline=None, print_blob=True, max_examples=60)
@given(
    st.lists(st.tuples(*[st.integers(-5, 5)] * 3), min_size=4, max_size=4, unique=True),
    st.tuples(*[st.integers(-20, 20)] * 3),
)
def test_integer_tetrahedra_are_decided_exactly(
    vertices: list[tuple[int, ...]], quarter: tuple[int, ...]
) -> None:
    """Points of a grid of quarters: on faces, edges and vertices as often as not."""
    rows, row = np.array(vertices, dtype=float), np.array(quarter) / 4
    truth = exact_coordinates(rows, row)
    inside = truth is not None and min(truth) >= 0
    assert bound(rows, row) == (0.0 if inside else None)


@pytest.mark.parametrize(
    ("rows", "row", "inside"),
    [
        ([[1.0, 2.0, 3.0], [3.0, 0.0, 1.0]], [2.0, 1.0, 2.0], True),
        ([[1.0, 2.0, 3.0], [3.0, 0.0, 1.0]], [2.0, 1.0, 2.0 + 2.0**-51], False),
        ([[1.0, 2.0, 3.0], [3.0, 0.0, 1.0]], [4.0, -1.0, 0.0], False),  # On the line, beyond.
        ([[1.0, 2.0, 3.0], [3.0, 0.0, 1.0]], [1.0, 2.0, 3.0], True),
        ([[0.1, 0.2]], [0.1, 0.2], True),  # A twin.
        ([[0.1, 0.2]], [0.1, 0.2 + HAIR], False),
        ([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]], [0.25, 0.25, 0.5], True),
        ([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]], [0.25, 0.25, 0.25], False),
        ([[50.1, 50.2, 50.3]] * 2, [50.1, 50.2, 50.3], False),  # Not unique.
    ],
)
def test_fewer_rivals_than_a_simplex(
    rows: list[list[float]], row: list[float], inside: bool
) -> None:
    assert bound(rows, row) == (0.0 if inside else None)


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((0, 2)),
        [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],  # d + 2.
        [[np.nan, 0.0], [1.0, 0.0], [0.0, 1.0]],
        [[np.inf, 0.0], [1.0, 0.0], [0.0, 1.0]],
    ],
)
def test_what_is_no_simplex_proves_nothing(rows: ArrayLike) -> None:
    assert bound(rows, [0.25, 0.25]) is None


@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_the_bias_counts_by_the_coordinates(offset: float) -> None:
    rows = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]) + offset
    centre = np.array([1.0, 1.0]) + offset  # 1/2, 1/4, 1/4.
    found = bound(rows, centre, [0.0, 4.0, 8.0], 3.0)
    assert found is not None
    assert 0.0 <= found < 1e-12
    low = bound(rows, centre, [0.0, 4.0, 8.0], 2.5)
    assert low is not None
    assert -0.5 <= low < -0.5 + 1e-12
    high = bound(rows, centre, [0.0, 4.0, 8.0], 3.0 + 2.0**-40)
    assert high is not None
    assert high > 0.0


def test_an_exact_tie_is_exactly_zero() -> None:
    rows = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    assert bound(rows, [1.0, 1.0], [1.1, 1.1, 1.1], 1.1) == 0.0
    assert bound(rows, [1.0, 1.0], [0.0, 4.0, 8.0], 3.0) == 0.0


def test_biases_that_underflow_are_not_lost() -> None:
    """Above all its rivals by the smallest number there is, so it leads at x = 0."""
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    found = bound(rows, [0.1, 0.1], [0.0, 0.0, 0.0], 5e-324)
    assert found is None or found > 0


def test_a_class_raised_by_an_ulp_over_its_twins_is_not_certified() -> None:
    found = bound([[0.1, 0.2]], [0.1, 0.2], [1.0], 1.0 + 2.0**-52)
    assert found == 2.0**-52


def test_large_offsets_keep_a_row_inside() -> None:
    rng = np.random.default_rng(5)
    for dim in (2, 8, 30):
        rows = rng.normal(size=(dim + 1, dim)) + 50.0
        assert bound(rows, rows.mean(0)) == 0.0
        found = coordinates_enclosure(rows, rows.mean(0))
        assert found is not None
        assert (found[0] > found[1]).all()


def test_rationals_give_up_on_large_systems() -> None:
    """On a face in many dimensions only rationals could tell, and they would take too long."""
    rng = np.random.default_rng(6)
    rows = rng.integers(-9, 10, size=(201, 200)).astype(float)
    assert bound(rows, (rows[0] + rows[1]) / 2) is None
