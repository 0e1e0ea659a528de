from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.activations.maps import by_bisection, exactly, scores
from unarg_callback.activations import sparsemax
from unarg_callback.activations import threshold as threshold_module
from unarg_callback.activations.projection import plain_projection, project
from unarg_callback.activations.simplex import project_rows
from unarg_callback.activations.threshold import (
    lower_bound,
    newton_projection,
    sorted_threshold,
)

SIZES = (1, 2, 3, 17, 300, 1024, 1037, 5000)


def assert_projection(x: Tensor, p: Tensor, tolerance: float) -> None:
    """The KKT conditions, in float64: sum 1, and ``p = max(x - tau, 0)`` for one tau."""
    wide, y = p.double(), x.double()
    torch.testing.assert_close(
        wide.sum(-1), torch.ones_like(wide.sum(-1)), rtol=0, atol=10 * tolerance
    )
    y = y - y.amax(-1, keepdim=True)
    inside = wide > 0
    tau = (torch.where(inside, y, 0).sum(-1, keepdim=True) - 1) / inside.sum(-1, keepdim=True)
    torch.testing.assert_close(wide, (y - tau).clamp_min(0), rtol=0, atol=tolerance)


@pytest.mark.parametrize("classes", SIZES)
@pytest.mark.parametrize("scale", [1e-5, 1e-3, 0.05, 1.0, 1e3, 1e8])
def test_three_algorithms_agree(classes: int, scale: float) -> None:
    for dtype, tolerance in ((torch.float64, 1e-14), (torch.float32, 3e-7)):
        x = scores(5, classes, seed=classes).mul(scale).to(dtype)
        fast, _ = project_rows(x)
        assert_projection(x, fast, tolerance)
        torch.testing.assert_close(fast, plain_projection(x), rtol=0, atol=tolerance)
        for row, p in zip(x.numpy(), fast.numpy(), strict=True):
            np.testing.assert_allclose(p, by_bisection(row), rtol=0, atol=tolerance)


@pytest.mark.parametrize("family", ["cauchy", "linspace", "log", "zipf", "steps", "two", "flat"])
@pytest.mark.parametrize("classes", [64, 4096, 50_000])
def test_families_of_scores(family: str, classes: int) -> None:
    rank = torch.arange(1, classes + 1, dtype=torch.float64)
    x = {
        "cauchy": torch.tan(3 * scores(classes).clamp(-0.5, 0.5)),
        "linspace": rank / classes,
        "log": rank.log(),
        "zipf": 1 / rank,
        "steps": (rank / 7).floor() / 100,
        "two": (rank > classes / 2).double(),
        "flat": torch.zeros(classes, dtype=torch.float64),
    }[family][None]
    p, support = project_rows(x)
    assert_projection(x, p, 1e-13)
    np.testing.assert_allclose(p[0].numpy(), by_bisection(x[0].numpy()), rtol=0, atol=1e-13)
    if len(support):
        assert sorted(support.tolist()) == p.view(-1).nonzero().view(-1).tolist()


def test_what_is_listed_is_the_support() -> None:
    x = scores(40, 6001, dtype=torch.float32)
    p, support = project_rows(x)
    assert len(support)
    torch.testing.assert_close(support.sort().values, p.view(-1).nonzero().view(-1))
    assert torch.equal(support // 6001, (support // 6001).sort().values)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=8))
def test_equals_rational_arithmetic(row: list[float]) -> None:
    exact = exactly(row)
    for projected in (
        project(torch.tensor(row, dtype=torch.float64)),
        plain_projection(torch.tensor(row, dtype=torch.float64)),
    ):
        assert projected.tolist() == pytest.approx([float(p) for p in exact], abs=1e-14)


def test_the_support_of_small_integers_is_exact() -> None:
    x = torch.randint(-3, 4, (2000, 6), generator=torch.Generator().manual_seed(0)) / 4
    for row, p in zip(x.tolist(), sparsemax(x).tolist(), strict=True):
        exact = exactly(row)
        # Rounding may leave a threshold of its own size at the border, and nothing more.
        assert all(abs(a - float(b)) < 1e-7 for a, b in zip(p, exact, strict=True))


@pytest.mark.parametrize("shape", [(3000, 97), (600, 700), (70, 9001), (40, 3000)])
@pytest.mark.parametrize("scale", [0.003, 0.05, 1.0])
def test_threads_do_not_change_a_bit(shape: tuple[int, int], scale: float) -> None:
    x = scores(*shape, dtype=torch.float32) * scale
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(sparsemax(x))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    rows = torch.stack([sparsemax(row) for row in x[:50]])
    torch.testing.assert_close(found[0][:50], rows, rtol=0, atol=3e-7)


def test_one_row_of_many_nonzeros_among_sparse_rows() -> None:
    x = scores(60, 5000, dtype=torch.float32)
    x[17] *= 1e-4
    p, _ = project_rows(x)
    assert_projection(x, p, 3e-7)
    assert int((p[17] > 0).sum()) > 4000
    torch.testing.assert_close(p, plain_projection(x), rtol=0, atol=3e-7)


@pytest.mark.parametrize("classes", [7, 300, 1037, 5000])
def test_undefined_rows_leave_the_others_as_they_are(classes: int) -> None:
    x = scores(50, classes, dtype=torch.float32)
    expected = sparsemax(x)
    broken = x.clone()
    broken[3, 2], broken[20, 5] = torch.nan, torch.inf
    broken[41] = -torch.inf
    broken.requires_grad_()
    p = sparsemax(broken)
    undefined = [3, 20, 41]
    kept = [row for row in range(50) if row not in undefined]
    assert p[undefined].isnan().all()
    torch.testing.assert_close(p[kept], expected[kept], rtol=0, atol=3e-7)
    p.backward(x)
    assert broken.grad is not None
    assert broken.grad[undefined].eq(0).all()
    assert broken.grad[kept].isfinite().all()


def test_rows_that_newton_leaves_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    y = scores(10, 50)
    y -= y.amax(1, keepdim=True)
    expected = sorted_threshold(y)
    for steps in (40, 1):
        monkeypatch.setattr(threshold_module, "_NEWTON_STEPS", steps)
        p = torch.empty_like(y)
        threshold, left = newton_projection(y, lower_bound(y), p)
        assert left is None
        torch.testing.assert_close(threshold, expected)
        torch.testing.assert_close(p, (y - expected).clamp(min=0))


@pytest.mark.parametrize("classes", [3, 3000])
def test_ties_equal_scores_and_one_class(classes: int) -> None:
    flat = torch.full((2, classes), 7.25)
    torch.testing.assert_close(sparsemax(flat), torch.full_like(flat, 1 / classes))
    tied = torch.full((1, classes), -1e9)
    tied[0, :2] = 5.0
    assert sparsemax(tied)[0, :2].tolist() == [0.5, 0.5]
    assert sparsemax(torch.tensor([[1e30], [-1e30]])).tolist() == [[1.0], [1.0]]


def test_empty_batches_have_a_shape_and_a_gradient() -> None:
    for shape in ((0, 5), (2, 0, 3), (4, 0)):
        x = torch.zeros(shape, requires_grad=True)
        p = sparsemax(x)
        assert p.shape == shape
        p.sum().backward()
        assert x.grad is not None


@pytest.mark.parametrize("dim", [0, 1, 2, 3, -1, -2, -3, -4])
def test_any_dimension_and_layout(dim: int) -> None:
    x = scores(3, 4, 5, 6).transpose(1, 3)
    p = sparsemax(x, dim=dim)
    torch.testing.assert_close(p.movedim(dim, -1), sparsemax(x.movedim(dim, -1).contiguous()))
    torch.testing.assert_close(p.sum(dim), torch.ones_like(p.sum(dim)))


def test_the_input_is_left_alone() -> None:
    for shape in ((4, 9), (4, 3000)):
        x = scores(*shape)
        before = x.clone()
        sparsemax(x)
        assert torch.equal(x, before)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e8])
def test_fifty_thousand_classes(scale: float) -> None:
    x = scores(8, 50_000, dtype=torch.float32) * scale
    p = sparsemax(x)
    assert_projection(x, p, 3e-7)
    for row, mine in zip(x.numpy(), p.numpy(), strict=True):
        np.testing.assert_allclose(mine, by_bisection(row), rtol=0, atol=3e-7)
