"""Certificates of many classes back to back: what goes in comes out, and what can't be is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from unarg_callback.geometry.certificates import Certificates

COUNT = 12
PARTS = {
    7: (np.array([1, 11, 0]), np.array([0.5, 0.25, 0.25])),
    2: (np.array([3]), np.array([1.0])),
    5: (np.array([4, 9]), np.array([2.0**-60, 1 / 3])),
}


@pytest.fixture
def held() -> Certificates:
    return Certificates.of(PARTS)


def test_they_are_kept_by_target(held: Certificates) -> None:
    assert len(held) == 3
    assert held.targets.tolist() == [2, 5, 7]
    assert held.offsets.tolist() == [0, 1, 3, 6]
    dtypes = [array.dtype for array in (held.targets, held.offsets, held.support, held.weight)]
    assert dtypes == [np.int64, np.int64, np.int32, np.float64]
    assert held.fits(COUNT)


def test_at_gives_what_was_put_in(held: Certificates) -> None:
    for place, target in enumerate(sorted(PARTS)):
        support, weight = held.at(place)
        np.testing.assert_array_equal(support, PARTS[target][0])
        np.testing.assert_array_equal(weight, PARTS[target][1])


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([], []),
        ([7], [7]),
        ([0, 1, 3, 4, 6, 8, 11], []),
        ([7, 2], [7, 2]),
        (range(COUNT), [2, 5, 7]),
        ([5, 5, 100, -1], [5]),
    ],
)
def test_parts_of_those_that_have_one(
    wanted: list[int], found: list[int], held: Certificates
) -> None:
    parts = held.parts(wanted)
    assert list(parts) == found
    for target, (support, weight) in parts.items():
        np.testing.assert_array_equal(support, PARTS[target][0])
        np.testing.assert_array_equal(weight, PARTS[target][1])


def test_parts_make_the_same_certificates_again(held: Certificates) -> None:
    again = Certificates.of(held.parts(range(COUNT)))
    for name, array in vars(held).items():
        np.testing.assert_array_equal(vars(again)[name], array)
        assert vars(again)[name].dtype == array.dtype
    fewer = Certificates.of(held.parts([5]))
    assert fewer.targets.tolist() == [5]
    assert fewer.fits(COUNT)


def test_none_at_all() -> None:
    none = Certificates.of({})
    assert len(none) == 0
    assert none.offsets.tolist() == [0]
    assert none.parts(range(COUNT)) == {}
    assert none.fits(0)
    assert none.fits(COUNT)
    assert Certificates.of(none.parts([])).fits(0)
    dtypes = [array.dtype for array in (none.targets, none.offsets, none.support, none.weight)]
    assert dtypes == [np.int64, np.int64, np.int32, np.float64]


def test_what_they_hold_is_their_own() -> None:
    support, weight = np.array([1, 2]), np.array([0.5, 0.5])
    held = Certificates.of({0: (support, weight)})
    support[:], weight[:] = 9, 9.0
    assert held.support.tolist() == [1, 2]
    assert held.weight.tolist() == [0.5, 0.5]


def test_nbytes_is_what_the_arrays_take(held: Certificates) -> None:
    assert held.nbytes == 8 * 3 + 8 * 4 + 4 * 6 + 8 * 6


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("targets", [5, 2, 7]),
        ("targets", [2, 2, 7]),
        ("targets", [-1, 5, 7]),
        ("targets", [2, 5, COUNT]),
        ("targets", [2, 5]),
        ("targets", [2, 5, 7, 8]),
        ("targets", [3, 5, 7]),
        ("offsets", [0, 1, 3]),
        ("offsets", [0, 1, 3, 5]),
        ("offsets", [0, 1, 3, 7]),
        ("offsets", [1, 2, 3, 6]),
        ("offsets", [0, 3, 1, 6]),
        ("offsets", [0, 3, 3, 6]),
        ("support", [3, 4, 9, 1, 11]),
        ("support", [3, 4, 9, 1, COUNT, 0]),
        ("support", [3, 4, 9, 1, 11, -1]),
        ("support", [3, 4, 9, 7, 11, 0]),
        ("support", [3, 4, 5, 1, 11, 0]),
        ("support", [2, 4, 9, 1, 11, 0]),
        ("weight", [1.0, 0.5]),
    ],
)
def test_what_does_not_fit(name: str, value: list[Any], held: Certificates) -> None:
    dtype = getattr(held, name).dtype
    assert not replace(held, **{name: np.array(value, dtype=dtype)}).fits(COUNT)


def test_they_fit_no_smaller_layer(held: Certificates) -> None:
    assert not held.fits(COUNT - 1)
    assert not held.fits(0)
    assert held.fits(COUNT + 1)
