"""A thin layer over HiGHS (MIT licence): dense linear programmes, limits, no output."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_SIMPLEX_ITERATIONS = 50_000


class _QuietHighs(highspy.Highs):
    """HiGHS prints a banner when its constructor enables callbacks, before any option is set."""

    def enableCallbacks(self) -> None:  # noqa: N802
        self.silent()
        super().enableCallbacks()


@dataclass(frozen=True, eq=False)
class Solution:
    """An optimum as HiGHS sees it; a proposal, never a verdict.

    Args:
        value: (n,) float64, the columns.
        dual: (m,) float64, the rows' multipliers, of minimisation.
    """

    value: Array
    dual: Array


class LinearProgram:
    """``min cost.x`` with column bounds and rows ``lower <= A x <= upper`` that can be added.

    Args:
        cost: (n,) float64.
        low: (n,) float64.
        high: (n,) float64.
    """

    def __init__(self, cost: Array, low: Array, high: Array) -> None:
        self._model = _QuietHighs()
        for option, value in (
            ("threads", 1),
            ("solver", "simplex"),
            ("simplex_iteration_limit", _SIMPLEX_ITERATIONS),
            ("primal_feasibility_tolerance", 1e-9),
            ("dual_feasibility_tolerance", 1e-9),
        ):
            self._model.setOptionValue(option, value)
        empty = np.zeros(0, dtype=np.int32)
        self._model.addCols(len(cost), cost, low, high, 0, empty, empty, np.zeros(0))

    def add_rows(self, matrix: Array, lower: Array, upper: Array) -> None:
        """Add dense rows: (m, n) matrix, (m,) bounds."""
        count, width = matrix.shape
        starts = np.arange(count, dtype=np.int32) * width
        columns = np.tile(np.arange(width, dtype=np.int32), count)
        self._model.addRows(
            count, lower, upper, matrix.size, starts, columns, np.ascontiguousarray(matrix).ravel()
        )

    def solve(self, seconds: float = float("inf")) -> Solution | None:
        """Solve from the last basis; None unless HiGHS reports an optimum within the limits."""
        if not seconds > 0:
            return None
        # HiGHS counts the time of all solves of one model together.
        self._model.setOptionValue("time_limit", self._model.getRunTime() + min(seconds, 1e9))
        self._model.run()
        if self._model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self._model.getSolution()
        return Solution(np.array(solution.col_value), np.array(solution.row_dual))
