"""Small layers whose answers are known from geometry, each by a function of its own.

A class's row is a point. Without bias, and with room in the domain, the vertices of the convex hull
of all points are argmaxable, and everything else is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tests.independent import ARGMAXABLE, EXCLUDED, UNARGMAXABLE

Floats = NDArray[np.float64]


class Problem(NamedTuple):
    """A layer, the domain of its input as text, and the right status of each class."""

    weight: Floats
    bias: Floats | None
    domain: str
    expected: tuple[int, ...]
    excluded: tuple[int, ...] = ()


def _problem(
    weight: ArrayLike,
    expected: str,
    *,
    bias: ArrayLike | None = None,
    domain: str = "box:100",
) -> Problem:
    """``expected`` has a letter a class: + argmaxable, - unargmaxable, x excluded."""
    codes = {"+": ARGMAXABLE, "-": UNARGMAXABLE, "x": EXCLUDED}
    status = tuple(codes[letter] for letter in expected)
    excluded = tuple(i for i, letter in enumerate(expected) if letter == "x")
    rows = np.array(weight, dtype=np.float64)
    assert len(rows) == len(status)
    offset = None if bias is None else np.array(bias, dtype=np.float64)
    return Problem(rows, offset, domain, status, excluded)


def _corners(dim: int) -> Floats:
    return np.array(list(itertools.product([-1.0, 1.0], repeat=dim)))


SQUARE = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


def simplex_with_centre() -> Problem:
    """A tetrahedron around the origin, and the origin."""
    return _problem([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, -1], [0, 0, 0]], "++++-")


def simplex_with_centre_free() -> Problem:
    """The same with the input free: the certificate must be exact."""
    return simplex_with_centre()._replace(domain="free")


def square_with_edge_midpoint() -> Problem:
    """The midpoint of an edge ties with its ends at best: lead 0."""
    return _problem(np.vstack([SQUARE, [1, 0]]), "++++-")


def square_with_edge_midpoint_free() -> Problem:
    """A tie of the same kind, to be proven exactly: rows on a face of the hull."""
    return square_with_edge_midpoint()._replace(domain="free")


def square_without_a_corner() -> Problem:
    """Excluding an end of the edge makes its midpoint a vertex of what is left."""
    return _problem(np.vstack([SQUARE, [1, 0]]), "x++++")


def duplicates() -> Problem:
    """Two equal vertices of a triangle never lead each other; the other two still lead."""
    return _problem([[1, 0], [-1, 2], [-1, -2], [1, 0]], "-++-")


def duplicates_free() -> Problem:
    """Equal rows with the input free."""
    return duplicates()._replace(domain="free")


def duplicates_with_bias() -> Problem:
    """Of two equal rows only the one with the higher bias can lead."""
    return _problem([[1, 0], [-1, 2], [-1, -2], [1, 0]], "-+++", bias=[0, 0, 0, 0.5])


def triplicates_excluded() -> Problem:
    """Two of three equal rows are excluded: the third leads."""
    return _problem([[1, 0], [-1, 2], [-1, -2], [1, 0], [1, 0]], "x+++x")


def all_rows_equal() -> Problem:
    """Nobody leads anybody."""
    return _problem(np.full((5, 3), 0.7), "-----")


def all_rows_equal_free() -> Problem:
    """The same with the input free."""
    return all_rows_equal()._replace(domain="free")


def all_rows_zero_with_bias() -> Problem:
    """The input does nothing, and the highest bias always wins."""
    return _problem(np.zeros((4, 2)), "--+-", bias=[0.0, 1.0, 2.0, 1.5])


def polygon_with_interior() -> Problem:
    """Points on a circle and the same at half the radius."""
    angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _problem(np.concatenate([circle, circle / 2]), "+" * 40 + "-" * 40)


def polygon_with_interior_free() -> Problem:
    """The same with the input free."""
    return polygon_with_interior()._replace(domain="free")


def collinear() -> Problem:
    """Points on a line in the plane: the ends lead."""
    return _problem(np.outer(np.arange(6), [3, -2]) + [0, 6], "+----+")


def collinear_free() -> Problem:
    """The same with the input free: supports of two rows in the plane."""
    return collinear()._replace(domain="free")


def cube_with_centre() -> Problem:
    """The corners of a cube in 5 dimensions and its centre."""
    return _problem(np.concatenate([_corners(5), np.zeros((1, 5))]), "+" * 32 + "-")


def cube_with_centre_free() -> Problem:
    """The same with the input free."""
    return cube_with_centre()._replace(domain="free")


def grid_with_ties() -> Problem:
    """All points of {-1, 0, 1}^3: 8 corners lead; 12 edges, 6 faces and the centre tie at best."""
    rows = np.array(list(itertools.product([-1, 0, 1], repeat=3)))
    return _problem(rows, "".join("+" if all(row) else "-" for row in rows))


def grid_with_ties_free() -> Problem:
    """The same with the input free."""
    return grid_with_ties()._replace(domain="free")


def line_in_a_small_box() -> Problem:
    """The outer classes win only where |x| > 1000: outside the box."""
    return _problem([[-1], [0], [1]], "-+-", bias=[0, 1000, 0])


def line_in_a_large_box() -> Problem:
    """The same layer where the box reaches far enough."""
    return line_in_a_small_box()._replace(domain="box:10000", expected=(ARGMAXABLE,) * 3)


def line_free() -> Problem:
    """The same layer without a box."""
    return line_in_a_small_box()._replace(domain="free", expected=(ARGMAXABLE,) * 3)


def line_touching_the_box() -> Problem:
    """The outer classes reach a tie exactly in the corner of the box."""
    return line_in_a_small_box()._replace(domain="box:1000")


def line_with_middle() -> Problem:
    """d = 1: the outermost slopes win, the one between does not."""
    return _problem([[-2.0], [0.5], [3.0]], "+-+")


def zero_column() -> Problem:
    """A feature that no class looks at: W is rank-deficient."""
    cube = np.concatenate([_corners(3), np.zeros((1, 3))])
    return _problem(np.insert(cube, 1, 0.0, axis=1), "+" * 8 + "-")


def zero_column_free() -> Problem:
    """The same with the input free: the linear system of a certificate is overdetermined."""
    return zero_column()._replace(domain="free")


def duplicated_column() -> Problem:
    """Two features that count alike: W is rank-deficient."""
    cube = np.concatenate([_corners(3), np.zeros((1, 3))])
    return _problem(cube[:, [0, 1, 2, 0]], "+" * 8 + "-")


def duplicated_column_free() -> Problem:
    """The same with the input free."""
    return duplicated_column()._replace(domain="free")


def common_offset() -> Problem:
    """50 added to every entry: argmaxability is about differences."""
    cube = np.concatenate([_corners(4), np.zeros((1, 4))]) + 50.0
    return _problem(cube, "+" * 16 + "-")


def centre_raised_by_bias() -> Problem:
    """With a bias the centre of a cube wins at x = 0."""
    cube = np.concatenate([_corners(3), np.zeros((1, 3))])
    return _problem(cube, "+" * 9, bias=[0.0] * 8 + [0.5])


def centre_raised_by_bias_free() -> Problem:
    """The same with the input free."""
    return centre_raised_by_bias()._replace(domain="free")


def centre_raised_to_a_tie() -> Problem:
    """The bias of the centre lifts it just to the line between two neighbours."""
    return _problem([[-1], [0], [1]], "+-+", bias=[1.0, 1.0, 1.0], domain="free")


def vertex_sunk_by_bias() -> Problem:
    """A corner of the square whose bias is out of reach in the box."""
    return _problem(SQUARE, "-+++", bias=[-1000, 0, 0, 0])


def vertex_sunk_by_bias_free() -> Problem:
    """With the input free every vertex wins somewhere, whatever its bias."""
    return vertex_sunk_by_bias()._replace(domain="free", expected=(ARGMAXABLE,) * 4)


def large_common_bias() -> Problem:
    """The same bias for all changes nothing."""
    cube = np.concatenate([_corners(3), np.zeros((1, 3))])
    return _problem(cube, "+" * 8 + "-", bias=np.full(9, 1000.0))


def scaled(scale: float) -> Problem:
    """A cube with a raised centre, a low twin of it, and all of it scaled."""
    cube = np.concatenate([_corners(3), np.zeros((2, 3))]) * scale
    return _problem(cube, "+" * 9 + "-", bias=np.array([0.0] * 8 + [0.5, 0.25]) * scale)


def tiny_scale() -> Problem:
    """Scaled by 1e-30."""
    return scaled(1e-30)


def huge_scale() -> Problem:
    """Scaled by 1e30."""
    return scaled(1e30)


def tiny_scale_free() -> Problem:
    """Scaled by 1e-30 with the input free."""
    return scaled(1e-30)._replace(domain="free")


def nonnegative_line() -> Problem:
    """For x >= 0 only the steepest slope wins; at x = 0 all tie."""
    return _problem([[1], [0], [-1]], "+--", domain="nonnegative:10")


def nonnegative_quadrant() -> Problem:
    """For x >= 0 a row above the segment between two others wins; one below does not."""
    rows = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [0.4, 0.4], [0.6, 0.6]]
    return _problem(rows, "++--+", domain="nonnegative:1000")


def positive_box() -> Problem:
    """A box away from the origin, where only one slope leads."""
    return _problem([[-1], [0], [1]], "--+", domain="box:2,3")


def one_input_only() -> Problem:
    """A box of one point, x = 0: the highest bias wins."""
    return _problem([[1, 0], [0, 1], [-1, -1]], "-+-", bias=[1, 3, 2], domain="box:0")


def one_input_only_tied() -> Problem:
    """A box of one point where all tie."""
    return _problem([[1, 0], [0, 1], [-1, -1]], "---", domain="box:0")


def single_class() -> Problem:
    """A class without rivals always wins."""
    return _problem([[1, 2, 3]], "+")


def single_class_left() -> Problem:
    """All its rivals are excluded."""
    return _problem([[1, 2], [1, 2], [5, 5]], "x+x")


def two_classes() -> Problem:
    """Different rows: each wins somewhere."""
    return _problem([[1, 2], [1, 1]], "++", bias=[0.0, 1.0])


def two_classes_same_row() -> Problem:
    """Equal rows: the bias decides."""
    return _problem([[1, 2], [1, 2]], "+-", bias=[1.0, 0.0])


def fewer_classes_than_dimensions() -> Problem:
    """Affinely independent rows are all vertices."""
    return _problem([[1, 0, 0, 0, 2], [0, 3, 0, 1, 0], [0, 0, 1, 0, 0]], "+++")


def few_classes_with_twins() -> Problem:
    """C <= d, but two classes are equal."""
    return _problem([[1, 0, 0, 2], [0, 3, 0, 1], [1, 0, 0, 2]], "-+-")


def few_classes_on_a_line() -> Problem:
    """C <= d, but one row is the midpoint of two others."""
    return _problem([[1, 0, 0, 2, 1], [0, 1, 0, 0, 2], [-1, 2, 0, -2, 3]], "+-+")


def few_classes_on_a_line_free() -> Problem:
    """The same with the input free."""
    return few_classes_on_a_line()._replace(domain="free")


ALL: list[Callable[[], Problem]] = [
    function
    for name, function in sorted(globals().items())
    if callable(function)
    and not name.startswith("_")
    and getattr(function, "__module__", "") == __name__
    and name not in {"Problem", "scaled"}
]
"""All problems of this module, by name."""
