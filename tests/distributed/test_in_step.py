"""A failure anywhere between two collectives is raised on all ranks, and all stay in step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests.distributed.processes import in_processes
from unarg_callback import IncrementalVerifier, OutputLayer, Report, verify
from unarg_callback.distributed.ranks import RankError, Ranks
from unarg_callback.distributed.row_sharded import verify_rows

_COLLECTIVES = ("gather", "broadcast", "maximum", "total")


class Counted:
    """Counts the collectives of a rank, and fails in place of one of them."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.count = 0
        self.failing = -1
        for name in _COLLECTIVES:
            setattr(ranks, name, partial(self._called, getattr(ranks, name)))

    def _called(self, collective: Callable[[Any], Any], value: Any) -> Any:
        self.count += 1
        if self.count == self.failing:
            raise MemoryError(f"no room before collective {self.count}")
        return collective(value)

    @contextmanager
    def at(self, failing: int) -> Iterator[None]:
        self.count, self.failing = 0, failing
        try:
            yield
        finally:
            self.failing = -1


def said(work: Callable[[], object]) -> str:
    try:
        work()
    except Exception as cause:
        return f"{type(cause).__name__}: {cause}"
    return "nothing"


def broken_everywhere(kind: str) -> tuple[list[str], Report]:
    """What a check that fails on rank 1 says, at each step in turn; and a whole one after that."""
    ranks = Ranks.join()
    counted = Counted(ranks)
    check: Callable[[], Report] = CHECKS[kind](ranks)
    with counted.at(-1):
        check()
    told, steps = [], counted.count
    for failing in range(1, steps + 1):
        with counted.at(failing if ranks.rank == 1 else -1):
            told.append(said(check))
    report = check()
    ranks.close()
    return told, report


def part(rank: int, seed: int = 0) -> OutputLayer:
    """25 rows of 3: some in the middle of the others, and some the same on every rank."""
    rng = np.random.default_rng(seed + 10 * rank)
    rows = rng.normal(size=(25, 3)).round(1)
    rows[::4] *= 0.1
    rows[:2] = [[2, 1, 0], [0, 0, 0.1]]
    return OutputLayer(rows)


def whole(seed: int = 0) -> OutputLayer:
    return OutputLayer(torch.cat([part(rank, seed).weight for rank in range(2)]))


def cold_rows(ranks: Ranks) -> Callable[[], Report]:
    return lambda: verify_rows(part(ranks.rank), ranks, most_bytes=2**13)


def warm_rows(ranks: Ranks) -> Callable[[], Report]:
    weight = part(ranks.rank).weight
    earlier = verify_rows(OutputLayer(weight), ranks)
    moved = OutputLayer(weight + 0.03 * part(ranks.rank, 5).weight)
    return lambda: verify_rows(moved, ranks, earlier=earlier)


def cold_divided(ranks: Ranks) -> Callable[[], Report]:
    # The layer of rank 1 is another one, so that it has to be sent.
    return lambda: verify(whole(ranks.rank), ranks=ranks)


def warm_divided(ranks: Ranks) -> Callable[[], Report]:
    verifier = IncrementalVerifier(ranks=ranks, deepen=5)
    verifier.update(whole())
    state = verifier.state_dict()
    moved = OutputLayer(whole().weight + 0.03 * whole(5).weight)

    def check() -> Report:
        before = verifier.last_report
        try:
            return verifier.update(moved)
        except MemoryError:
            assert verifier.last_report is before
            raise
        finally:
            # Each from the same start.
            verifier.load_state_dict(state)

    return check


CHECKS: dict[str, Callable[[Ranks], Callable[[], Report]]] = {
    "cold rows": cold_rows,
    "warm rows": warm_rows,
    "cold divided": cold_divided,
    "warm divided": warm_divided,
}


@pytest.mark.parametrize(
    ("kind", "least"),
    [("cold rows", 30), ("warm rows", 30), ("cold divided", 4), ("warm divided", 3)],
)
def test_a_failure_at_any_step_is_raised_on_all_and_the_next_check_is_whole(
    kind: str, least: int
) -> None:
    (heard, first), (told, second) = in_processes(broken_everywhere, kind)
    assert len(told) >= least
    own = [f"MemoryError: no room before collective {at + 1}" for at in range(len(told))]
    assert told == own
    assert heard == [f"RankError: rank 1 failed: {text}" for text in own]
    assert first.status.tolist() == second.status.tolist()
    assert first.counts["undecided"] == 0
    assert first.counts["unargmaxable"] > 0


def said_by_nested() -> list[object]:
    ranks = Ranks.join()
    second = ranks.rank == 1

    def fail(when: bool = True) -> int:
        if when:
            raise ValueError(f"on {ranks.rank}")
        return ranks.rank

    def caught() -> str:
        return said(lambda: ranks.together(lambda: fail(second)))

    def another() -> None:
        try:
            ranks.together(lambda: fail(second))
        except (ValueError, RankError) as cause:
            # It is told once, whatever becomes of it.
            raise OSError(f"after {type(cause).__name__}") from cause

    def deep() -> None:
        ranks.together(lambda: ranks.together(lambda: (fail(second), ranks.gather(1))))

    def beside() -> None:
        # One rank fails outside of where the other waits.
        fail(second)
        ranks.together(lambda: ranks.gather(1))

    def twice() -> None:
        ranks.together(lambda: said(lambda: ranks.together(lambda: fail(second))))
        fail(not second)

    told: list[object] = [
        ranks.together(lambda: (caught(), ranks.gather(ranks.rank))),
        *(said(lambda: ranks.together(work)) for work in (another, deep, beside, twice)),  # noqa: B023
        said(lambda: ranks.together(fail)),
        ranks.gather(ranks.rank),
    ]
    ranks.close()
    return told


def test_failures_pass_through_further_levels_once() -> None:
    first, second = in_processes(said_by_nested)
    other = "RankError: rank 1 failed: ValueError: on 1"
    assert first == [
        *((other, [0, 1]), "OSError: after RankError", other, other),
        *("ValueError: on 0", "ValueError: on 0", [0, 1]),
    ]
    assert second == [
        *(("ValueError: on 1", [0, 1]), "OSError: after ValueError"),
        *("ValueError: on 1", "ValueError: on 1"),
        *("RankError: rank 0 failed: ValueError: on 0", "ValueError: on 1", [0, 1]),
    ]


def what_is_left() -> tuple[int, bool]:
    """Bytes that travel arrive whole, whatever their sizes; nothing keeps what failed alive."""
    ranks = Ranks.join()
    sent = torch.arange(3.0 + 4 * ranks.rank)
    gathered = ranks.gather(("x" * (1 + 999 * ranks.rank), sent))
    sizes = sum(len(text) + len(values) for text, values in gathered)
    said(lambda: ranks.together(lambda: 1 // ranks.rank))
    kept = ranks._told is not None
    ranks.close()
    return sizes, kept


def test_messages_of_different_sizes_and_nothing_kept() -> None:
    assert in_processes(what_is_left) == [(1 + 3 + 1000 + 7, False)] * 2
