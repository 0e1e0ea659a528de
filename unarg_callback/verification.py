"""Verify a layer: search for witnesses, settle the rest exactly, and keep what the checker accepts.

This is the paper's combined algorithm (Grivas et al. 2022, figure 4) over all classes at once.
"""

from __future__ import annotations

import time
from typing import get_args

import torch
from numpy.typing import ArrayLike
from tqdm import tqdm

from unarg_callback.assembly import report_of
from unarg_callback.distributed.divided import (
    Start,
    agree,
    checker_of,
    divide_what_is_left,
    part_of,
    share,
)
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.rounding import plain_arithmetic
from unarg_callback.report import Report, Reuse
from unarg_callback.search.limits import Limits
from unarg_callback.search.settle import ExactName
from unarg_callback.search.stages import Stages

_BEFORE_SHARING = 4
_MANY = 512
_TRIED = 8


def verify(
    layer: OutputLayer,
    domain: Domain | str | float | ArrayLike = "box:100",
    *,
    patience: int | None = None,
    time_limit: float | None = None,
    min_lead: float | None = None,
    device: torch.device | str | None = None,
    sweep_dtype: torch.dtype = torch.float32,
    exact: ExactName = "interior_point",
    progress: bool = False,
    ranks: Ranks | None = None,
) -> Report:
    """Decide for every class whether some input of the domain makes it the argmax.

    Class t is argmaxable if some x in the domain gives it a lead
    ``z_t - max_{i != t} z_i`` above ``min_lead``, with ``z = W x + b``.

    Several processes can divide the work (``ranks``). Each has to call this, with the same
    arguments; the report is the same on all of them, and is about the layer of rank 0.

    Args:
        layer: the output layer.
        domain: where x may lie: a :class:`Domain`, its text form, or a radius.
        patience: most reflections a class in the approximate search. Default: while they settle
            classes faster than the exact stage would.
        time_limit: seconds after which no new work starts; what is left is undecided.
        min_lead: in units of the logits; default 1e-9 of their range over a box, 0 if free.
        device: where products run; default: where the layer lies. Proofs are float64 everywhere.
        sweep_dtype: float32 or float64, for the search.
        exact: which exact way comes first; the other takes what it can't settle.
        progress: show a bar on stderr; rank 0 alone does.
        ranks: the processes that divide the work among them; None for this one alone.

    Returns:
        A report with a checked proof behind every verdict.

    Raises:
        DomainError: the domain doesn't fit the layer.
        UnargError: another argument is out of range.
        RankError: it failed on another rank.

    >>> layer = OutputLayer([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    >>> verify(layer).counts["unargmaxable"]
    1
    """
    begin = time.monotonic()
    ranks = Ranks() if ranks is None else ranks

    def checked() -> Report:
        require_options(
            patience=patience,
            time_limit=time_limit,
            exact=exact,
            min_lead=min_lead,
            sweep_dtype=sweep_dtype,
        )
        moved = layer if device is None else layer.to(device)
        moved.require_plain_values()
        common = agree(ranks, Start(moved, "", (Domain.of(domain), time_limit)))
        within, seconds = common.given
        count = len(common.layer.active)
        with (
            torch.no_grad(),
            plain_arithmetic(common.layer.device),
            tqdm(
                total=count, disable=not (progress and ranks.first), unit="class", desc="verify"
            ) as bar,
        ):
            checker = checker_of(ranks, common.layer, within, min_lead, sweep_dtype)
            limits = Limits(
                seconds, lambda decided: bar.update(min(decided * ranks.size, count - bar.n))
            )
            stages = Stages(checker, limits, mine=part_of(ranks, count))
            from_scratch(stages, patience, exact, ranks)
            share(ranks, stages, Reuse())
            return report_of(
                stages, stages.evidence(), time.monotonic() - begin, notes=common.notes
            )

    return ranks.together(checked)


def from_scratch(
    stages: Stages, patience: int | None, exact: ExactName, ranks: Ranks | None = None
) -> None:
    """Run all stages over all classes.

    Args:
        stages: of this process's part.
        patience: most reflections a class, or None.
        exact: which exact way comes first.
        ranks: who has the other parts; a collective then.
    """
    stages.read_off_twins()
    todo = stages.todo()
    stages.start(todo)
    if patience is not None:
        stages.search(todo, patience)
    else:
        stages.search(todo, None, most=_BEFORE_SHARING)
        left = stages.todo()
        if len(left) > _MANY:
            # Where thousands of rows lie together, a few certificates end the search for them all.
            stages.settle(left, exact, most=_TRIED)
        stages.search(stages.todo(), None, tried=True)
    if ranks is not None:
        divide_what_is_left(ranks, stages)
    stages.settle(stages.todo(), exact)


def require_options(
    *,
    patience: int | None,
    time_limit: float | None,
    exact: str,
    min_lead: float | None = None,
    sweep_dtype: torch.dtype = torch.float32,
) -> None:
    """Raise unless the options of a check are in range.

    Raises:
        UnargError: one is not.
    """
    if exact not in get_args(ExactName):
        raise UnargError(f"exact is {exact!r}; expected one of {', '.join(get_args(ExactName))}")
    if patience is not None and (
        isinstance(patience, bool) or not isinstance(patience, int) or patience < 0
    ):
        raise UnargError(f"patience is {patience!r}; expected a whole number from 0, or None")
    if time_limit is not None and not (_is_number(time_limit) and time_limit >= 0):
        raise UnargError(f"time_limit is {time_limit!r}; expected seconds from 0, or None")
    if min_lead is not None and not _is_number(min_lead):
        raise UnargError(f"min_lead is {min_lead!r}; expected a number from 0, or None")
    if sweep_dtype not in (torch.float32, torch.float64):
        raise UnargError(f"sweep_dtype is {sweep_dtype}; expected torch.float32 or torch.float64")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
