from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.activations.maps import CASES, inside, scores
from tests.activations.properties import proved, rows, steepness, table
from unarg_callback.activations import sparsehourglass, spherical_softmax

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "sparse_maps.md"


@pytest.mark.parametrize("name", rows())
def test_every_cell_of_a_row(name: str) -> None:
    assert len(proved(name)) == 6


def test_the_document_has_the_table_as_it_is_proved() -> None:
    assert table() in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_sum_order_and_permutation(name: str) -> None:
    case = CASES[name]
    for classes in (1, 2, 7, 1500):
        z = inside(name, 6, classes, seed=classes)
        p = case.run(z)
        assert (p >= 0).all()
        torch.testing.assert_close(p.sum(1), torch.ones(6, dtype=p.dtype))
        order = torch.randperm(classes, generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(case.run(z[:, order]), p[:, order])
        if case.monotone:
            assert (p.gather(1, z.argsort(1)).diff(dim=1) >= -1e-14).all()
            assert torch.equal(p.gather(1, z.argmax(1, keepdim=True))[:, 0], p.amax(1))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("scale", [1e-5, 1e-2, 1e2, 1e8])
def test_sums_over_many_scales_in_float32(name: str, scale: float) -> None:
    z = inside(name, 20, 50).mul(scale).float()
    if name == "sparsecone":
        z = z.abs()
    p = CASES[name].run(z)
    torch.testing.assert_close(p.sum(1), torch.ones(20), rtol=0, atol=2e-6)


def test_the_papers_constant_of_sparsehourglass_is_too_small() -> None:
    """1 + 1/(Kq) is exceeded even between two points of finite distance."""
    classes, q = 10, 0.1
    p = torch.full((classes,), 1e-9, dtype=torch.float64)
    p[0] = 1 - 9e-9
    z = (p - p.mean()) * (classes * q) / (1 + classes * q)
    moved = z + 1e-3 / classes
    step = sparsehourglass(moved, q) - sparsehourglass(z, q)
    ratio = float(step.norm() / (moved - z).norm())
    bound = ((1 + classes * q) ** 2 + classes - 1) ** 0.5 / (classes * q)
    assert steepness(lambda z: sparsehourglass(z, q), z + 1e-12) == pytest.approx(bound, rel=1e-3)
    assert 1 + 1 / (classes * q) < ratio <= bound


def test_spherical_softmax_ranks_by_size() -> None:
    p = spherical_softmax(torch.tensor([1.0, -3.0]))
    assert p.tolist() == pytest.approx([0.1, 0.9])


def test_maps_are_lipschitz_along_random_segments() -> None:
    z, w = scores(5000, 5, seed=1), scores(5000, 5, seed=2)
    for name, row in rows().items():
        bound = row.lipschitz[1]
        if bound < float("inf"):
            step = (row.run(z) - row.run(w)).norm(dim=1) / (z - w).norm(dim=1)
            assert float(step.max()) <= bound, name
