from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from tests.search import KINDS, Floats, random_layer
from tests.shared_data import load_layer, needs_shared
from unarg_callback import (
    Domain,
    DomainError,
    LayerError,
    OutputLayer,
    Status,
    chebyshev_centre,
    verify,
)
from unarg_callback.search.linear_program import LinearProgram


def full_radius(
    weight: NDArray[np.floating], bias: NDArray[np.floating] | None, target: int, domain: str
) -> float:
    """The paper's LP over all rivals, r free."""
    rows = weight.astype(float)
    offset = np.zeros(len(rows)) if bias is None else bias.astype(float)
    low, high = Domain.parse(domain).bounds(rows.shape[1])
    rivals = np.delete(np.arange(len(rows)), target)
    normal = rows[rivals] - rows[target]
    length = np.linalg.norm(normal, axis=1)
    found = linprog(
        [0.0] * rows.shape[1] + [-1.0],
        A_ub=np.hstack([normal / length[:, None], np.ones((len(rivals), 1))]),
        b_ub=(offset[target] - offset[rivals]) / length,
        bounds=[*zip(low, high, strict=True), (None, None)],
        method="highs",
    )
    assert found.fun is not None
    return -float(found.fun)


def assert_as_the_full_lp(weight: Floats, bias: Floats | None, target: int, domain: str) -> float:
    layer = OutputLayer(weight, bias)
    found = chebyshev_centre(layer, target, domain)
    assert found is not None
    assert found.converged
    assert Domain.parse(domain).contains(found.point[None]).all()
    assert found.radius == pytest.approx(full_radius(weight, bias, target, domain), abs=1e-6)
    # It is the radius at its own centre.
    rivals = np.delete(np.arange(len(weight)), target)
    offset = np.zeros(len(weight)) if bias is None else bias.astype(float)
    difference = weight[target].astype(float) - weight[rivals]
    lead = difference @ found.point + offset[target] - offset[rivals]
    assert found.radius == pytest.approx(
        (lead / np.linalg.norm(difference, axis=1)).min(), abs=1e-9
    )
    return found.radius


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ties"])
@pytest.mark.parametrize("domain", ["box:100", "box:-1,3", "nonnegative:10"])
def test_the_radius_is_that_of_the_full_lp_and_its_sign_the_verdict(kind: str, domain: str) -> None:
    weight, bias = random_layer(kind, 150, 3, seed=7)
    status = verify(OutputLayer(weight, bias), domain).status
    for target in range(0, 150, 10):
        radius = assert_as_the_full_lp(weight, bias, target, domain)
        if abs(radius) > 1e-5:
            assert status[target] == (Status.ARGMAXABLE if radius > 0 else Status.UNARGMAXABLE)
    assert {int(s) for s in status} == {1, 2}


@needs_shared
@pytest.mark.parametrize("target", [0, 100, 200, 450, 690, 875])
def test_g2pm(target: int) -> None:
    weight, bias, _ = load_layer("g2pm")
    radius = assert_as_the_full_lp(weight.astype(float), bias.astype(float), target, "box:100")
    if target == 690:  # gui1, which only the box shuts out.
        assert radius < 0


def test_a_class_that_touches_its_region_has_radius_0() -> None:
    """The middle of an edge ties all along a line."""
    layer = OutputLayer([[1.0, 1.0], [-1.0, 1.0], [0.0, -1.0], [0.0, 1.0]])
    found = chebyshev_centre(layer, 3, 1.0)
    assert found is not None
    assert found.radius == pytest.approx(0.0, abs=1e-9)


def test_rescaling_the_layer_changes_nothing() -> None:
    weight, bias = random_layer("biased", 60, 4)
    assert bias is not None
    for scale in (1e-30, 1e30):
        one = chebyshev_centre(OutputLayer(weight, bias), 5, 100.0)
        other = chebyshev_centre(OutputLayer(weight * scale, bias * scale), 5, 100.0)
        assert one is not None
        assert other is not None
        assert other.radius == pytest.approx(one.radius, rel=1e-6)


def test_excluded_classes_beat_nobody_and_have_no_ball() -> None:
    square = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    alone = chebyshev_centre(OutputLayer(square), 0, 1.0)
    layer = OutputLayer([*square, [9.0, 9.0], [np.nan, 0.0]], excluded=[4, 5])
    found = chebyshev_centre(layer, 0, 1.0)
    assert alone is not None
    assert found is not None
    assert found.radius == pytest.approx(alone.radius)
    for index in (4, 5, 6, -1):
        with pytest.raises(LayerError, match=f"class {index} takes no part"):
            chebyshev_centre(layer, index, 1.0)


def test_twins() -> None:
    layer = OutputLayer([[1.0], [1.0], [-1.0], [-1.0]], [0.0, 0.0, 1.0, 0.0])
    assert chebyshev_centre(layer, 0, 1.0) is None
    assert chebyshev_centre(layer, 3, 1.0) is None
    assert chebyshev_centre(layer, 2, 1.0) is not None  # Above its twin.


def test_the_free_domain_has_no_largest_ball() -> None:
    with pytest.raises(DomainError, match="expected a box"):
        chebyshev_centre(OutputLayer([[1.0], [-1.0]]), 0, "free")


def test_without_rivals_the_ball_has_no_end() -> None:
    found = chebyshev_centre(OutputLayer([[1.0, 2.0]]), 0, "box:2,4")
    assert found is not None
    assert found.radius == np.inf
    assert found.point.tolist() == [3.0, 3.0]


def test_a_solver_that_fails_is_not_converged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearProgram, "solve", lambda self, seconds=1.0: None)
    weight, _ = random_layer("gaussian", 40, 3)
    found = chebyshev_centre(OutputLayer(weight), 0, 1.0)
    assert found is not None
    assert not found.converged
    limited = chebyshev_centre(OutputLayer(weight), 0, 1.0, time_limit=0.0)
    assert limited is not None
    assert not limited.converged
