"""What is kept of activations, against numpy, on one process and on two."""

from __future__ import annotations

import copy
import io
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.distributed.processes import in_processes
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import DomainError, UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.monitoring.activation_range import ActivationRange
from unarg_callback.monitoring.activation_totals import ActivationTotals


def drawn(tokens: int, dim: int = 16, seed: int = 0) -> Tensor:
    """Activations of which every dimension has its own middle and width."""
    draw = torch.Generator().manual_seed(seed)
    scale = torch.linspace(0.1, 30, dim)
    return torch.randn(tokens, dim, generator=draw) * scale + torch.linspace(-40, 9, dim)


def taught(*batches: Tensor) -> ActivationRange:
    observed = ActivationRange()
    for batch in batches:
        observed.update(batch)
    return observed


def equal(one: Any, other: Any) -> bool:
    """Whether two states are the same, down to the last bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return bool(one == other)


class TestUpdate:
    def test_extremes_are_exact(self) -> None:
        x = drawn(5000)
        observed = taught(x[:3000].view(30, 100, 16), x[3000])
        observed.update(x[3001:])
        assert observed.low.tolist() == x.double().amin(0).tolist()
        assert observed.high.tolist() == x.double().amax(0).tolist()
        assert (observed.tokens, observed.calls, observed.dim) == (5000, 3, 16)

    def test_percentiles_of_all_tokens_in_small_calls(self) -> None:
        x = drawn(5000)
        low, high = taught(*x.split(250)).percentiles()
        for found, q in ((low, 0.005), (high, 0.995)):
            exact = np.quantile(x.numpy(), q, axis=0, method="lower")
            np.testing.assert_allclose(found, exact, rtol=1 / 65 + 1e-6, atol=2.0**-16)

    def test_percentiles_of_a_sample_in_large_ones(self) -> None:
        x = drawn(40_000)
        low, high = taught(*x.split(4000)).percentiles(0.9)
        for found, q in ((low, 0.05), (high, 0.95)):
            error = np.abs(found) / 65
            # Samples of 2,560 tokens put the share of those below off by 0.02 at most.
            assert ((x.numpy() < found - error).mean(0) < q + 0.02).all()
            assert ((x.numpy() < found + error).mean(0) > q - 0.02).all()

    def test_no_place_in_a_sequence_is_left_out(self) -> None:
        observed = ActivationRange()
        x = torch.zeros(64, 64, 1)
        x[:, 5] = 10.0
        for _ in range(64):
            observed.update(x)
        found = observed.percentiles(2 * (0.5 - 1 / 64) + 0.001)[1]
        assert found[0] == pytest.approx(10, rel=1 / 65)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_other_dtypes_are_upcast_exactly(self, dtype: torch.dtype) -> None:
        x = drawn(100).to(dtype)
        observed = taught(torch.zeros(1, 16), x)
        expected = torch.cat([torch.zeros(1, 16), x.double()]).amax(0)
        assert observed.high.tolist() == expected.tolist()

    def test_what_is_not_finite_is_counted_apart(self) -> None:
        x = drawn(100)
        clean = taught(x[3:])
        x[0, 3], x[1, 4], x[2, 5] = math.nan, math.inf, -math.inf
        observed = taught(x)
        assert (observed.tokens, observed.not_finite) == (97, 3)
        assert observed.low.tolist() == clean.low.tolist()
        assert str(observed.table9()) == str(clean.table9())
        assert [a.tolist() for a in observed.percentiles()] == [
            a.tolist() for a in clean.percentiles()
        ]

    def test_padding_is_masked(self) -> None:
        x = drawn(100).view(10, 10, 16)
        mask = torch.arange(10) < torch.arange(1, 11)[:, None]
        padded = torch.where(mask[..., None], x, math.nan)
        observed = ActivationRange()
        observed.update(padded, mask)
        clean = taught(x[mask])
        assert (observed.tokens, observed.not_finite) == (55, 0)
        assert equal(observed.state_dict(), clean.state_dict())

    def test_nothing_but_padding(self) -> None:
        observed = ActivationRange()
        observed.update(torch.zeros(0, 16))
        observed.update(drawn(3), torch.zeros(3, dtype=torch.bool))
        with pytest.raises(UnargError, match="no tokens"):
            observed.table9()

    @pytest.mark.parametrize(
        ("x", "mask"),
        [
            (torch.zeros(3, 5), None),
            (torch.zeros(()), None),
            (torch.zeros(3, 4, dtype=torch.int64), None),
            (torch.zeros(3, 4, device="meta"), None),
            (torch.zeros(3, 4), torch.ones(2, dtype=torch.bool)),
            (torch.zeros(3, 4), torch.ones(3)),
        ],
    )
    def test_misfits(self, x: Tensor, mask: Tensor | None) -> None:
        observed = taught(torch.zeros(1, 4))
        with pytest.raises(UnargError, match="expected"):
            observed.update(x, mask)
        assert observed.tokens == 1

    def test_the_callers_tensors_stay(self) -> None:
        x = drawn(10).requires_grad_()
        before, version = x.detach().clone(), x._version
        taught(x)
        assert torch.equal(x, before)
        assert (x._version, x.grad) == (version, None)

    def test_nothing_waits_for_the_device(self) -> None:
        # Tensors without data refuse whatever would have to know it.
        totals = ActivationTotals(8, device="meta")
        for tokens in (0, 3, 1000):
            x = torch.empty(tokens, 8, dtype=torch.bfloat16, device="meta")
            totals.add(x)
            totals.add(x, torch.empty(tokens, dtype=torch.bool, device="meta"))

    def test_its_size(self) -> None:
        totals = taught(torch.zeros(1, 512))._totals
        assert totals is not None
        sketches = (totals.dimensions, totals.token_low, totals.token_high)
        held = sum(sketch.counts.nbytes for sketch in sketches)
        assert held + totals.low.nbytes + totals.high.nbytes < 512 * 8.22e3 + 1.05e6


class TestTable9:
    def test_against_numpy(self) -> None:
        x = drawn(20_000)
        row = taught(*x.split(5000)).table9("bg-en")
        lows, highs = x.amin(1).numpy(), x.amax(1).numpy()
        for found, values in ((row.min_range, lows), (row.max_range, highs)):
            exact = np.quantile(values, [0.005, 0.995], method="lower")
            np.testing.assert_allclose(found, exact, rtol=1 / 257 + 1e-6)
        assert (row.min, row.max) == (float(x.min()), float(x.max()))
        assert (row.tokens, row.model) == (20_000, "bg-en")

    def test_in_markdown(self) -> None:
        lines = str(taught(torch.tensor([[-2.0, 4.0]] * 3)).table9("a|b")).splitlines()
        assert lines[0] == "| model | min range | max range | min | max | tokens |"
        assert lines[2] == "| a\\|b | [-2, -2] | [4, 4] | -2 | 4 | 3 |"


class TestDomain:
    def test_the_extremes(self) -> None:
        x = drawn(1000)
        x[:, 3] = 7.0
        observed = taught(x)
        box = observed.domain()
        assert box.low.tolist() == observed.low.tolist()
        wide = observed.domain(margin=1.5)
        np.testing.assert_allclose(wide.high - wide.low, 1.5 * (box.high - box.low), rtol=1e-12)
        assert (wide.low[3], wide.high[3]) == (7.0, 7.0)
        assert wide.contains(x.double().numpy()).all()

    def test_a_share(self) -> None:
        observed = taught(*drawn(5000).split(250))
        box, (low, high) = observed.domain(reach=0.99), observed.percentiles(0.99)
        assert (box.low.tolist(), box.high.tolist()) == (low.tolist(), high.tolist())
        whole = observed.domain()
        assert (box.low >= whole.low).all()
        assert (box.high <= whole.high).all()
        assert (box.high - box.low < whole.high - whole.low).mean() > 0.9

    def test_values_beyond_the_sketch_are_bounded_by_the_extremes(self) -> None:
        x = torch.tensor([[1e9], [-3e20], [5e19], [1e-30]])
        low, high = taught(x).percentiles()
        assert (low[0], high[0]) == (float(x.min()), float(x.max()))

    @pytest.mark.parametrize("reach", ["all", 0.0, 1.5, math.nan])
    def test_arguments(self, reach: Any) -> None:
        with pytest.raises(UnargError, match="expected"):
            taught(drawn(5)).domain(reach=reach)
        with pytest.raises(DomainError, match="from 1"):
            taught(drawn(5)).domain(margin=0.5)
        with pytest.raises(UnargError, match="'both'"):
            ActivationRange("always")  # type: ignore[arg-type]


class TestExceeds:
    def test_a_box_that_is_too_small(self) -> None:
        x = torch.zeros(1000, 4)
        x[:7, 2], x[9, 1] = -131.25, 105.0
        observed = taught(x)
        assert observed.exceeds(Domain.box(100)) == (
            "the layer's inputs leave the domain box:-100,100 in 2 of 4 dimensions, at least 7 of "
            "1,000 tokens; dimension 2 reached -131.25, and the domain ends at -100 there"
        )
        sides = Domain.box([-100.0, -100, -200, -100], 100.0)
        told = observed.exceeds(sides)
        assert told is not None
        assert "in 1 of 4 dimensions; dimension 1 reached 105, and" in told

    def test_one_that_is_large_enough(self) -> None:
        observed = taught(drawn(100))
        assert observed.exceeds(observed.domain()) is None
        assert observed.exceeds(Domain.free()) is None
        assert ActivationRange().exceeds(Domain.box(1)) is None
        with pytest.raises(DomainError, match="dimensions"):
            observed.exceeds(Domain.box(np.ones(3)))

    def test_by_the_smallest_step(self) -> None:
        observed = taught(torch.tensor([[np.nextafter(np.float32(1), np.float32(2)).item()]]))
        assert "at least 1 of 1 tokens" in (observed.exceeds(Domain.box(1)) or "")


class TestMerge:
    @settings(max_examples=20, deadline=None)
    @given(st.lists(st.integers(0, 40), min_size=3, max_size=3), st.permutations(range(3)))
    def test_any_order(self, sizes: list[int], order: list[int]) -> None:
        parts = [drawn(size, 3, seed) for seed, size in enumerate(sizes)]
        together = taught(*parts)
        left = taught()
        for at in order:
            left.merge(taught(parts[at]))
        right = taught(parts[order[1]])
        right.merge(taught(parts[order[2]]))
        right.merge(taught(parts[order[0]]))
        assert equal(left.state_dict(), together.state_dict())
        assert equal(right.state_dict(), together.state_dict())

    def test_what_saw_nothing(self) -> None:
        one, other = taught(drawn(5)), ActivationRange()
        state = one.state_dict()
        one.merge(other)
        assert equal(one.state_dict(), state)
        other.merge(one)
        assert equal(other.state_dict(), state)
        other.update(drawn(5))
        assert equal(one.state_dict(), state)

    def test_another_dtype(self) -> None:
        one, third = taught(torch.ones(1, 1)), torch.tensor([[1 / 3]], dtype=torch.float64)
        one.merge(taught(third))
        assert one.low.tolist() == [1 / 3]

    def test_another_layer(self) -> None:
        one = taught(drawn(5))
        with pytest.raises(UnargError, match="2 dimensions"):
            one.merge(taught(drawn(5, 2)))
        assert one.tokens == 5


def reduced() -> dict[str, Any]:
    ranks = Ranks.join()
    own = taught(*drawn(500).chunk(2)[ranks.rank].split(100))
    before = own.state_dict()
    found: dict[str, Any] = {
        "total": own.reduce(ranks).state_dict(),
        "extremes": own.extremes(ranks),
        "kept": equal(own.state_dict(), before),
    }
    only_second = own if ranks.rank else ActivationRange()
    found["one saw nothing"] = only_second.reduce(ranks).tokens
    found["nobody saw anything"] = ActivationRange().reduce(ranks).trouble()
    try:
        taught(drawn(3, 2 + ranks.rank)).reduce(ranks)
    except UnargError as cause:
        found["misfit"] = str(cause)
    ranks.close()
    return found


class TestReduce:
    def test_two_processes(self) -> None:
        x = drawn(500)
        together = taught(*x.split(50))
        for found in in_processes(reduced):
            total = ActivationRange()
            total.load_state_dict(found["total"])
            assert str(total.table9()) == str(together.table9())
            assert [a.tolist() for a in total.percentiles()] == [
                a.tolist() for a in together.percentiles()
            ]
            assert [a.tolist() for a in found["extremes"]] == [
                x.amin(0).tolist(),
                x.amax(0).tolist(),
            ]
            assert (total.tokens, found["kept"], found["one saw nothing"]) == (500, True, 250)
            assert "no call of the layer" in found["nobody saw anything"]
            assert "[2, 3] dimensions" in found["misfit"]

    def test_alone(self) -> None:
        one = taught(drawn(30))
        total = one.reduce(Ranks())
        one.update(100 * drawn(30))
        assert str(total.table9()) == str(taught(drawn(30)).table9())


class TestState:
    def test_it_survives_a_safe_load(self) -> None:
        one, other = taught(*drawn(3000).split(1000)), ActivationRange()
        buffer = io.BytesIO()
        torch.save(one.state_dict(), buffer)
        buffer.seek(0)
        other.load_state_dict(torch.load(buffer, weights_only=True))
        for each in (one, other):
            each.update(drawn(1000, seed=1))
        assert equal(one.state_dict(), other.state_dict())
        other.load_state_dict(ActivationRange().state_dict())
        assert other.tokens == 0

    @pytest.mark.parametrize(
        ("key", "bad"),
        [
            ("low", None),
            ("low", torch.zeros(15)),
            ("low", torch.full((16,), math.nan)),
            ("low", torch.full((16,), 1e9)),
            ("low", torch.zeros(16, dtype=torch.int64)),
            ("high", torch.full((16,), math.inf)),
            ("high", torch.zeros(16, 1)),
            ("tokens", -1),
            ("tokens", 0),
            ("calls", 1.5),
            ("not_finite", None),
            ("dimensions", {}),
            ("token_low", "swapped"),
        ],
    )
    def test_damaged(self, key: str, bad: Any) -> None:
        observed = taught(drawn(20))
        state = observed.state_dict()
        totals = state["totals"]
        bad = totals["dimensions"] if isinstance(bad, str) else bad
        with pytest.raises(UnargError, match="state_dict"):
            observed.load_state_dict({**state, "totals": {**totals, key: bad}})
        assert equal(observed.state_dict(), state)

    @pytest.mark.parametrize("bad", [{}, {"version": 1}, {"version": 2, "totals": None}])
    def test_another_state(self, bad: dict[str, Any]) -> None:
        with pytest.raises(UnargError, match="state_dict"):
            ActivationRange().load_state_dict(bad)

    def test_of_another_layer(self) -> None:
        observed = taught(drawn(3, 4))
        with pytest.raises(UnargError, match="expected 4, the layer's"):
            observed.load_state_dict(taught(drawn(3, 5)).state_dict())

    def test_copies_go_their_own_way(self) -> None:
        layer = nn.Linear(16, 20)
        observed = ActivationRange().attach(layer)
        layer(drawn(5))
        copies = (copy.deepcopy(observed), pickle.loads(pickle.dumps(observed)))
        layer(drawn(5))
        assert observed.tokens == 10
        for each in copies:
            assert each.tokens == 5
            each.attach(nn.Linear(16, 2)).detach()
        layer(drawn(5))
        assert observed.tokens == 15
