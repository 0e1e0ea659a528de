"""What must not change a verdict: scale, shift, order, batches, threads, precision of storage."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.independent import check_proofs
from unarg_callback import Domain, OutputLayer, Status
from unarg_callback.geometry import leaders
from unarg_callback.search import batched
from unarg_callback.verification import verify

Floats = NDArray[np.float64]
DOMAINS = ("box:100", "nonnegative:20", "free")


def layer(seed: int = 0, classes: int = 160, dim: int = 5) -> tuple[Floats, Floats]:
    """A layer of float32 values with many classes of either kind, and a pair of duplicates."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(classes, dim)) * rng.random((classes, 1))
    weight[7], weight[11] = 5 * weight[3], 5 * weight[3]
    bias = 0.1 * rng.normal(size=classes)
    bias[7] = bias[11]
    return weight.astype(np.float32).astype(np.float64), bias.astype(np.float32).astype(np.float64)


def status(weight: Floats, bias: Floats | None, domain: Domain | str = "box:100") -> list[int]:
    """Statuses, after the independent checker has accepted every proof."""
    report = verify(OutputLayer(weight, bias), domain)
    check_proofs(vars(report.proofs), weight, bias)
    return report.status.tolist()


@pytest.fixture(scope="module")
def reference() -> dict[str, list[int]]:
    found = {domain: status(*layer(), domain) for domain in DOMAINS}
    for statuses in found.values():
        assert set(statuses) == {Status.ARGMAXABLE, Status.UNARGMAXABLE}
        assert min(statuses.count(1), statuses.count(2)) > 20
        assert statuses[7] == statuses[11] == Status.UNARGMAXABLE
    return found


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("scale", [2.0**-60, 2.0**60, 1e-12, 1e-3, 1e3, 1e12])
def test_rescaling_the_layer(reference: dict[str, list[int]], domain: str, scale: float) -> None:
    weight, bias = layer()
    assert status(weight * scale, bias * scale, domain) == reference[domain]


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("shift", [1.0, 50.0])
def test_one_vector_added_to_every_row(
    reference: dict[str, list[int]], domain: str, shift: float
) -> None:
    weight, bias = layer()
    vector = shift * np.array([1.0, -1.0, 1.0, 0.5, 0.25])
    assert status(weight + vector, bias, domain) == reference[domain]


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("shift", [-3.0, 1000.0])
def test_one_number_added_to_every_bias(
    reference: dict[str, list[int]], domain: str, shift: float
) -> None:
    weight, bias = layer()
    assert status(weight, bias + shift, domain) == reference[domain]


@pytest.mark.parametrize("domain", DOMAINS)
def test_order_of_the_classes(reference: dict[str, list[int]], domain: str) -> None:
    weight, bias = layer()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(weight))
        expected = [reference[domain][i] for i in order]
        assert status(weight[order], bias[order], domain) == expected, f"seed {seed}"


@pytest.mark.parametrize("spread", [1, 3])
def test_units_of_the_features(reference: dict[str, list[int]], spread: int) -> None:
    # x_k in other units: the column and the bounds change together.
    weight, bias = layer()
    units = 2.0 ** (spread * np.array([-7, 1, 0, 3, 7]))
    box = Domain.box(-100.0 / units, 100.0 / units)
    assert status(weight * units, bias, box) == reference["box:100"]
    assert status(weight * units, bias, "free") == reference["free"]


def test_mirrored_features(reference: dict[str, list[int]]) -> None:
    weight, bias = layer()
    assert status(-weight, bias, "box:100") == reference["box:100"]
    assert status(-weight, bias, Domain.box(-20.0, 0.0)) == reference["nonnegative:20"]


def test_an_origin_elsewhere(reference: dict[str, list[int]]) -> None:
    # x + c in place of x: the box moves and the bias takes up W c, both exact here.
    weight, bias = layer()
    weight = np.round(weight * 2**10) / 2**10
    move = np.array([4.0, -8.0, 2.0, 0.0, 16.0])
    expected = status(weight, bias, "box:100")
    assert status(weight, bias - weight @ move, Domain.box(move - 100, move + 100)) == expected


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("size", [1, 7, 64])
def test_batch_and_tile_sizes(
    monkeypatch: pytest.MonkeyPatch, reference: dict[str, list[int]], domain: str, size: int
) -> None:
    monkeypatch.setattr(leaders, "_POINTS", size)
    monkeypatch.setattr(leaders, "_CLASSES", size + 4)
    monkeypatch.setattr(batched, "_LARGEST_BATCH", size)
    report = verify(OutputLayer(*layer()), domain)
    assert report.status.tolist() == reference[domain]


@pytest.mark.parametrize("domain", DOMAINS)
def test_sweeps_in_float64(reference: dict[str, list[int]], domain: str) -> None:
    weight, bias = layer()
    report = verify(OutputLayer(weight, bias), domain, sweep_dtype=torch.float64)
    check_proofs(vars(report.proofs), weight, bias)
    assert report.status.tolist() == reference[domain]


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("domain", DOMAINS)
def test_thread_count(reference: dict[str, list[int]], domain: str) -> None:
    assert status(*layer(), domain) == reference[domain]


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("patience", [0, 1, 300])
def test_patience(reference: dict[str, list[int]], domain: str, patience: int) -> None:
    report = verify(OutputLayer(*layer()), domain, patience=patience)
    assert report.status.tolist() == reference[domain]


@pytest.mark.parametrize("domain", DOMAINS)
def test_either_exact_way(reference: dict[str, list[int]], domain: str) -> None:
    report = verify(OutputLayer(*layer()), domain, exact="cutting_plane")
    assert report.status.tolist() == reference[domain]


@pytest.mark.parametrize("domain", DOMAINS)
def test_float32_storage(reference: dict[str, list[int]], domain: str) -> None:
    weight, bias = layer()
    single = OutputLayer(weight.astype(np.float32), bias.astype(np.float32))
    report = verify(single, domain)
    assert report.status.tolist() == reference[domain]
    check_proofs(vars(report.proofs), weight, bias)


@pytest.mark.parametrize("domain", DOMAINS)
def test_half_precision_storage(domain: str) -> None:
    weight, bias = (torch.from_numpy(array).to(torch.bfloat16) for array in layer())
    exact = [array.to(torch.float64).numpy() for array in (weight, bias)]
    report = verify(OutputLayer(weight, bias), domain)
    check_proofs(vars(report.proofs), *exact)
    assert report.status.tolist() == status(exact[0], exact[1], domain)


@pytest.mark.parametrize("domain", DOMAINS)
def test_excluding_is_removing(domain: str) -> None:
    weight, bias = layer()
    excluded = np.random.default_rng(1).choice(len(weight), 40, replace=False)
    kept = np.setdiff1d(np.arange(len(weight)), excluded)
    report = verify(OutputLayer(weight, bias, excluded=excluded.tolist()), domain)
    check_proofs(vars(report.proofs), weight, bias, excluded.tolist())
    assert report.status[kept].tolist() == status(weight[kept], bias[kept], domain)
    assert (report.status[excluded] == Status.EXCLUDED).all()


@pytest.mark.parametrize("domain", DOMAINS)
def test_repeating_the_check_repeats_everything_but_the_time(domain: str) -> None:
    one, other = (verify(OutputLayer(*layer()), domain) for _ in range(2))
    for name, array in vars(one.proofs).items():
        np.testing.assert_array_equal(array, getattr(other.proofs, name))
    np.testing.assert_array_equal(one.lead, other.lead)
    np.testing.assert_array_equal(one.reflections, other.reflections)


def test_a_time_limit_leaves_classes_undecided_and_says_so(
    reference: dict[str, list[int]],
) -> None:
    weight, bias = layer()
    report = verify(OutputLayer(weight, bias), time_limit=0.0)
    assert not report.complete
    assert report.counts["undecided"] > 0
    check_proofs(vars(report.proofs), weight, bias)
    decided = report.status != Status.UNDECIDED
    assert (report.status == np.array(reference["box:100"]))[decided].all()


def test_min_lead_is_a_billionth_of_what_the_logits_span() -> None:
    weight, bias = layer()
    found = verify(OutputLayer(weight, bias), "box:100").min_lead
    span = 100 * np.abs(weight).sum(1).max() + np.abs(bias).max()
    # Centring takes at most as much off an entry as the largest entry, and a range has two ends.
    assert 1e-10 * span < found <= 4e-9 * span
    for scale in (2.0**-60, 2.0**60):
        scaled = verify(OutputLayer(weight * scale, bias * scale), "box:100").min_lead
        assert scaled == pytest.approx(found * scale, rel=1e-12)
    assert verify(OutputLayer(weight, bias), "free").min_lead == 0


def test_min_lead_of_ones_own() -> None:
    weight, bias = layer()
    plain = verify(OutputLayer(weight, bias), "box:1")
    strict = verify(OutputLayer(weight, bias), "box:1", min_lead=0.1)
    assert strict.min_lead == 0.1
    summary = check_proofs(vars(strict.proofs), weight, bias)
    assert summary.undecided == 0
    assert strict.counts["unargmaxable"] > plain.counts["unargmaxable"]
