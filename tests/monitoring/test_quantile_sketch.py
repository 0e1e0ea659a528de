"""Quantiles against numpy's, up to the accuracy that is stated."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unarg_callback.errors import UnargError
from unarg_callback.monitoring.quantile_sketch import QuantileSketch

SMALLEST = 2.0**-16
LEVELS = (0.0, 0.005, 0.1, 0.5, 0.9, 0.995, 1.0)

float32s = st.floats(width=32, allow_nan=False, allow_infinity=False)
moderate = st.floats(-65535, 65535, width=32)


def sketch_of(values: Any, **options: Any) -> QuantileSketch:
    array = torch.as_tensor(values)
    rows = array[:, None] if array.ndim == 1 else array
    sketch = QuantileSketch(rows.shape[1], **options)
    sketch.add(rows)
    return sketch


def whole_range(values: Any) -> QuantileSketch:
    return sketch_of(values, bits=7, lowest=-126, highest=128, dtype=torch.int64)


def assert_close(sketch: QuantileSketch, values: NDArray[Any], smallest: float) -> None:
    for q in LEVELS:
        exact = np.quantile(values.astype(np.float64), q, axis=0, method="lower")
        allowed = np.maximum(sketch.accuracy * np.abs(exact) * (1 + 1e-9), smallest)
        assert (np.abs(sketch.quantile(q) - exact) <= allowed).all(), (q, exact)


class TestAccuracy:
    @given(st.lists(moderate, min_size=1, max_size=60))
    @example([0.0, -0.0, 1e-45, -1e-45])
    @example([-3.0] * 7)
    @example([65535.0, -65535.0, SMALLEST, -SMALLEST])
    def test_a_stream(self, values: list[float]) -> None:
        array = np.array(values, np.float32)
        assert_close(sketch_of(array), array, SMALLEST)

    @given(st.lists(float32s, min_size=1, max_size=60))
    @example([3.4028234663852886e38, -3.4028234663852886e38, 1.1754943508222875e-38])
    def test_the_whole_range(self, values: list[float]) -> None:
        array = np.array(values, np.float32)
        assert_close(whole_range(array), array, 2.0**-126)

    @pytest.mark.parametrize("kind", ["normal", "cauchy", "negative", "constant", "sparse"])
    def test_many_rows(self, kind: str) -> None:
        draw = np.random.default_rng(0)
        values = {
            "normal": draw.normal(3, 20, (5000, 300)),
            "cauchy": draw.standard_cauchy((5000, 300)).clip(-6e4, 6e4),
            "negative": -draw.lognormal(0, 3, (5000, 300)).clip(0, 6e4),
            "constant": np.broadcast_to(draw.normal(0, 1, 300), (5000, 300)),
            "sparse": np.maximum(draw.normal(-2, 1, (5000, 300)), 0),
        }[kind].astype(np.float32)
        assert_close(sketch_of(values), values, SMALLEST)

    def test_what_is_stated(self) -> None:
        assert QuantileSketch(1).accuracy == 1 / 65
        assert QuantileSketch(1, bits=7).accuracy == 1 / 257

    def test_beyond_the_range(self) -> None:
        sketch = sketch_of([-1e9, -1.0, 65536.0, float("inf")])
        found = [sketch.quantile(q).item() for q in (0.0, 0.34, 0.67, 1.0)]
        assert found[0] == -np.inf
        assert found[1] == pytest.approx(-1, rel=sketch.accuracy)
        assert found[2:] == [np.inf, np.inf]

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_other_dtypes(self, dtype: torch.dtype) -> None:
        values = torch.linspace(-50, 70, 500).to(dtype)
        assert_close(sketch_of(values), values.double().numpy(), SMALLEST)

    def test_float64_beyond_float32(self) -> None:
        assert whole_range(torch.tensor([1e300, 1e301], dtype=torch.float64)).quantile(0) == np.inf

    def test_flushed_subnormals_change_nothing(self) -> None:
        values = torch.tensor([1e-40, -1e-40, 1.0])
        if not torch.set_flush_denormal(True):
            pytest.skip("this machine can't flush subnormals")
        try:
            flushed = sketch_of(values)
        finally:
            torch.set_flush_denormal(False)
        assert torch.equal(flushed.counts, sketch_of(values).counts)


class TestMask:
    def test_masked_numbers_leave_no_trace(self) -> None:
        sketch = QuantileSketch(2)
        rows = torch.tensor([[1.0, 2.0], [float("nan"), 9.0], [-float("inf"), float("inf")]])
        sketch.add(rows, torch.tensor([True, False, False]))
        assert torch.equal(sketch.counts, sketch_of(rows[:1]).counts)
        assert int(sketch.taken) == 1

    def test_nothing_taken_in(self) -> None:
        sketch = QuantileSketch(2)
        sketch.add(torch.ones(3, 2), torch.zeros(3, dtype=torch.bool))
        sketch.add(torch.ones(0, 2))
        assert np.isnan(sketch.quantile(0.5)).all()

    def test_a_full_one_takes_nothing_more_in(self) -> None:
        sketch = sketch_of([1.0])
        limit = torch.iinfo(torch.int32).max
        sketch.counts[sketch.counts != 0] = limit - 1
        sketch.taken.fill_(limit - 1)
        sketch.add(torch.full((2, 1), 1.0))
        assert (int(sketch.taken), int(sketch.counts.max())) == (limit - 1, limit - 1)
        sketch.add(torch.full((1, 1), 1.0))
        assert (int(sketch.taken), int(sketch.counts.max())) == (limit, limit)
        sketch.add(torch.full((1, 1), 1.0))
        assert int(sketch.counts.sum()) == limit


class TestMerge:
    @settings(max_examples=30)
    @given(st.lists(float32s, max_size=30), st.integers(0, 30), st.randoms())
    def test_together_or_apart(self, values: list[float], cut: int, draw: Any) -> None:
        shuffled = draw.sample(values, len(values))
        one, other = (sketch_of(torch.tensor(part)) for part in (values[:cut], values[cut:]))
        other.merge(one)
        together = sketch_of(torch.tensor(shuffled))
        assert torch.equal(other.counts, together.counts)
        assert int(other.taken) == len(values)

    def test_counts_widen(self) -> None:
        sketches = []
        for _ in range(2):
            sketch = sketch_of([1.0])
            sketch.counts.mul_(2**30)
            sketch.taken.fill_(2**30)
            sketches.append(sketch)
        sketches[0].merge(sketches[1])
        assert int(sketches[0].counts.max()) == int(sketches[0].taken) == 2**31
        sketches[1].merge(sketches[0])
        assert int(sketches[1].counts.max()) == 3 * 2**30

    def test_misfits(self) -> None:
        with pytest.raises(UnargError, match="same rows and bins"):
            QuantileSketch(2).merge(QuantileSketch(3))
        with pytest.raises(UnargError, match="same rows and bins"):
            QuantileSketch(2).merge(QuantileSketch(2, bits=4))


class TestSurelyBeyond:
    @given(st.lists(moderate, min_size=1, max_size=40), moderate, moderate)
    def test_never_more_than_there_are(self, values: list[float], a: float, b: float) -> None:
        low, high = sorted((a, b))
        array = np.array(values, np.float32).astype(np.float64)
        found = int(sketch_of(np.array(values, np.float32)).surely_beyond(low, high)[0])
        assert found <= ((array < low) | (array > high)).sum()

    def test_all_but_those_near_the_ends(self) -> None:
        sketch = sketch_of([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 1e9])
        assert sketch.surely_beyond(-1.5, 1.5).tolist() == [5]
        assert sketch.surely_beyond(-np.inf, 1.5).tolist() == [3]
        assert sketch.surely_beyond(-1.5, np.inf).tolist() == [2]


class TestState:
    def test_it_survives_a_safe_load(self) -> None:
        sketch = sketch_of(torch.randn(300, 4, generator=torch.Generator().manual_seed(0)))
        buffer = io.BytesIO()
        torch.save(sketch.state_dict(), buffer)
        buffer.seek(0)
        other = QuantileSketch.from_state(torch.load(buffer, weights_only=True))
        assert torch.equal(other.counts, sketch.counts)
        assert int(other.taken) == 300
        assert other.layout == sketch.layout

    def test_only_used_bins(self) -> None:
        state = whole_range(torch.ones(1000)).state_dict()
        assert state["counts"].tolist() == [[1000]]
        assert state["counts"].untyped_storage().nbytes() == 8

    @pytest.mark.parametrize(
        ("key", "bad"),
        [
            ("bins", torch.tensor([5, 5], dtype=torch.int32)),
            ("bins", torch.tensor([-1, 5], dtype=torch.int32)),
            ("bins", torch.tensor([5, 10**6], dtype=torch.int32)),
            ("bins", torch.tensor([5], dtype=torch.int32)),
            ("counts", torch.tensor([[3, -1]], dtype=torch.int32)),
            ("counts", torch.tensor([[1, 2]], dtype=torch.int32)),
            ("counts", torch.tensor([[1, 1]])),
            ("taken", 3),
            ("taken", 2.0),
            ("layout", [0, 5, -16, 16]),
            ("layout", [1, 5, 16, -16]),
        ],
    )
    def test_damaged(self, key: str, bad: Any) -> None:
        state = {**sketch_of([1.0, 2.0]).state_dict(), key: bad}
        with pytest.raises(UnargError, match=r"expected|damaged"):
            QuantileSketch.from_state(state)

    @pytest.mark.parametrize(
        "options",
        [{"rows": 0}, {"rows": 1.0}, {"bits": 13}, {"lowest": -127}, {"highest": -16}],
    )
    def test_arguments(self, options: dict[str, Any]) -> None:
        with pytest.raises(UnargError, match="expected"):
            QuantileSketch(**{"rows": 1, **options})
        with pytest.raises(UnargError, match="expected"):
            QuantileSketch(1, dtype=torch.int16)
        with pytest.raises(UnargError, match="too many"):
            QuantileSketch(2**21)
        with pytest.raises(UnargError, match="from 0 to 1"):
            QuantileSketch(1).quantile(1.5)
