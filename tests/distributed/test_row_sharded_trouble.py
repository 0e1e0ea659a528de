"""What goes wrong on one rank ends the check on all; and what no rank may do: hold the layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.distributed.processes import in_processes
from unarg_callback import OutputLayer, Status
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.distributed.row_pool import Pool
from unarg_callback.distributed.row_search import RowSearch
from unarg_callback.distributed.row_sharded import verify_rows
from unarg_callback.geometry.leaders import LeadEvaluator
from unarg_callback.verification import verify


def layer_of(rank: int, classes: int = 30, dim: int = 3, seed: int = 0) -> OutputLayer:
    rng = np.random.default_rng(seed + rank)
    return OutputLayer(rng.normal(size=(classes, dim)))


def said(work: Callable[[], Any]) -> str:
    try:
        work()
    except Exception as cause:
        return f"{type(cause).__name__}: {cause}"
    return "nothing"


@contextmanager
def failing(owner: type, name: str) -> Iterator[None]:
    """Let a method raise."""
    kept = getattr(owner, name)

    def fail(*_: object, **__: object) -> None:
        raise MemoryError(f"no room for {name}")

    setattr(owner, name, fail)
    try:
        yield
    finally:
        setattr(owner, name, kept)


_FAILURES: list[tuple[type, str]] = [
    (LeadEvaluator, "__init__"),
    (LeadEvaluator, "rows"),
    (LeadEvaluator, "_tile_maxima"),
    (RowSearch, "_record"),
    (Pool, "settle"),
]


def failures() -> list[str]:
    ranks = Ranks.join()
    heard = []
    for owner, name in _FAILURES:
        if ranks.first:
            heard.append(said(lambda: verify_rows(layer_of(0), ranks)))
            continue
        with failing(owner, name):
            heard.append(said(lambda: verify_rows(layer_of(1), ranks)))
    # The ranks are still in step.
    heard.append(str(verify_rows(layer_of(ranks.rank), ranks).counts["undecided"]))
    ranks.close()
    return heard


def test_a_failure_on_one_rank_is_raised_on_all() -> None:
    first, second = in_processes(failures)
    for at, (_, name) in enumerate(_FAILURES):
        assert first[at] == f"RankError: rank 1 failed: MemoryError: no room for {name}"
        assert second[at] == f"MemoryError: no room for {name}"
    assert first[-1] == second[-1] == "0"


def refusals() -> list[str]:
    ranks = Ranks.join()
    rank = ranks.rank
    names = ["a", "b", "c"] if rank else None
    heard = [
        said(lambda: verify_rows(layer_of(rank, dim=3 + rank), ranks)),
        said(lambda: verify_rows(OutputLayer(torch.ones(3, 2, dtype=_DTYPES[rank])), ranks)),
        said(lambda: verify_rows(OutputLayer(np.eye(3), names=names), ranks)),
        said(lambda: verify_rows(None, ranks)),
        said(lambda: verify_rows(layer_of(rank), ranks, f"box:{1 + rank}")),
        said(lambda: verify_rows(layer_of(rank), ranks, time_limit=-1.0 if rank else 5.0)),
        said(lambda: verify_rows(layer_of(rank), ranks, min_lead=-1.0)),
        said(lambda: verify_rows(layer_of(rank), ranks, most_bytes=0)),
    ]
    ranks.close()
    return heard


_DTYPES = (torch.float32, torch.float64)


def test_parts_and_options_that_do_not_fit_are_refused_on_all_ranks() -> None:
    for heard in in_processes(refusals):
        assert heard[0].startswith("LayerError: the parts of the layer differ in features: 3, 4")
        assert "differ in dtype: torch.float32, torch.float64" in heard[1]
        assert "differ in names" in heard[2]
        assert heard[3].startswith("LayerError: no rank has rows")
        assert heard[4].startswith("UnargError: domain, min_lead")
        assert "time_limit is -1.0" in heard[5]
        assert heard[6].startswith("DomainError: min_lead is -1.0")
        assert "most_bytes is 0" in heard[7]


class Largest(TorchDispatchMode):
    """Remembers the most rows of ``dim`` numbers that any tensor held."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim, self.rows = dim, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else (result,):
            if isinstance(one, torch.Tensor) and one.ndim and self.dim in one.shape:
                self.rows = max(self.rows, one.numel() // self.dim)
        return result


def watched() -> tuple[int, dict[str, int], int]:
    ranks = Ranks.join()
    rng = np.random.default_rng(0)
    # Rows on a sphere, and forty near its centre. 13 is no other size here.
    weight = rng.normal(size=(24000, 13))
    weight /= np.linalg.norm(weight, axis=1, keepdims=True)
    weight[::600] *= 0.05
    half = np.array_split(weight, ranks.size)[ranks.rank].astype(np.float32)
    with Largest(13) as largest:
        report = verify_rows(OutputLayer(half), ranks, most_bytes=2**18)
    ranks.close()
    return largest.rows, report.counts, len(report.evidence.points.half)


@pytest.mark.slow
def test_no_rank_holds_the_layer() -> None:
    for rows, counts, own in in_processes(watched):
        assert own == 12000
        assert 12000 <= rows < 18000
        assert counts["argmaxable"] == 23960
        assert counts["unargmaxable"] == 40


def limited() -> tuple[dict[str, int], bool, tuple[str, ...], list[int]]:
    ranks = Ranks.join()
    # Only the clock of rank 0 counts.
    report = verify_rows(layer_of(ranks.rank, 400, 8), ranks, time_limit=0.0)
    again = verify_rows(layer_of(ranks.rank, 400, 8), ranks, earlier=report)
    ranks.close()
    return report.counts, report.complete, report.notes, [again.counts["undecided"]]


def test_a_time_limit_leaves_undecided_what_it_did_not_reach() -> None:
    answers = in_processes(limited)
    assert answers[0] == answers[1]
    counts, complete, notes, (undecided,) = answers[0]
    assert not complete
    assert counts["undecided"] > 0
    assert notes == ("The time limit ended the check; what it did not reach is undecided.",)
    assert undecided == 0


def moved() -> list[tuple[list[int], bool, int, int]]:
    """Checks of a layer that moves, each from the proofs of the one before."""
    ranks = Ranks.join()
    layer = layer_of(ranks.rank, 200, 4)
    report, heard = None, []
    for step in range(3):
        drift = layer_of(ranks.rank, 200, 4, seed=10 * step + 10).weight
        layer = OutputLayer(layer.weight + 0.02 * drift)
        report = verify_rows(layer, ranks, earlier=report)
        reuse = report.reuse
        heard.append((report.status.tolist(), reuse.warm, reuse.evaluated, reuse.recertified))
    # Other classes: nothing to start from, on any rank.
    if ranks.first:
        layer = OutputLayer(layer.weight, excluded=[0])
    other = verify_rows(layer, ranks, earlier=report)
    heard.append((other.status.tolist(), other.reuse.warm, 0, 0))
    ranks.close()
    return heard


def test_a_layer_that_moves_is_checked_from_its_earlier_proofs() -> None:
    first, second = in_processes(moved)
    assert first == second
    weight = torch.cat([layer_of(rank, 200, 4).weight for rank in range(2)])
    for step in range(3):
        drift = [layer_of(rank, 200, 4, seed=10 * step + 10).weight for rank in range(2)]
        weight = weight + 0.02 * torch.cat(drift)
        cold, (status, warm, evaluated, recertified) = whole(weight), first[step]
        assert status == cold
        assert warm is (step > 0)
        if warm:
            assert evaluated > 40
            assert recertified > 50
    assert first[-1] == (whole(weight, [0]), False, 0, 0)


def whole(weight: torch.Tensor, excluded: list[int] | None = None) -> list[int]:
    report = verify(OutputLayer(weight, excluded=excluded or []))
    assert Status.UNDECIDED not in report.status
    return report.status.tolist()
