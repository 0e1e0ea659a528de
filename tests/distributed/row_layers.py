"""Layers divided by rows, for the processes of the tests of row_sharded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tests.problems import Problem
from unarg_callback import OutputLayer, Report
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.distributed.row_sharded import verify_rows
from unarg_callback.geometry.proof import Proofs

Floats = NDArray[np.float64]


class Answer(NamedTuple):
    """What one rank says of a layer."""

    report: dict[str, Any]
    proofs: Proofs
    summary: str


def part_of(problem: Problem, cuts: Sequence[int], ranks: Ranks) -> OutputLayer | None:
    """The rows of this rank: those between two cuts, which begin with 0 and end with C."""
    begin, end = cuts[ranks.rank], cuts[ranks.rank + 1]
    if begin == end:
        return None
    bias = None if problem.bias is None else problem.bias[begin:end]
    excluded = [at - begin for at in problem.excluded if begin <= at < end]
    return OutputLayer(problem.weight[begin:end], bias, excluded=excluded)


def even_cuts(classes: int, size: int) -> list[int]:
    """Where to cut a layer into parts that differ by one row at most."""
    return [classes * at // size for at in range(size + 1)]


def answer_of(report: Report) -> Answer:
    """What of a report can travel between processes and be compared."""
    names = ("status", "lead", "rival", "duplicate_of", "potential", "age", "min_lead", "scale")
    fields = {name: getattr(report, name) for name in (*names, "complete", "notes", "names")}
    return Answer(fields, report.proofs, report.summary().split(":", 1)[1])


def verified(problems: Sequence[tuple[Problem, Sequence[int]]], **options: Any) -> list[Answer]:
    """Verify each layer between its cuts, and once more from its own proofs; both in turn."""
    ranks = Ranks.join()
    torch.set_num_threads(1)
    answers = []
    for problem, cuts in problems:
        local = part_of(problem, cuts, ranks)
        report = verify_rows(local, ranks, problem.domain, **options)
        again = verify_rows(local, ranks, problem.domain, earlier=report, **options)
        answers += [answer_of(report), answer_of(again)]
    ranks.close()
    return answers
