"""Findings for one logger of a trainer, whatever its make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unarg_callback.dashboards.summary_writer import TensorBoardDashboard
from unarg_callback.dashboards.tables import tables_of
from unarg_callback.dashboards.text import TableMemory, write_table
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.finding import Finding
from unarg_callback.monitoring.tags import scalars


class LoggerOutput:
    """Hands findings to a logger of Lightning, or alike, at the step that they belong to.

    Scalars go through ``log_metrics``, so that the logger's own step axis is left alone. A logger
    whose ``experiment`` is a ``SummaryWriter`` gets all that :class:`TensorBoardDashboard` shows;
    any other gets its tables by :func:`write_table`.

    Args:
        logger: of Lightning, or alike.
        heads: names of all heads of the run for the layout, or none while they aren't known.
    """

    def __init__(
        self, logger: Any, heads: Callable[[], Sequence[str]] | Sequence[str] = ()
    ) -> None:
        self.logger = logger
        self._heads = heads
        self._tables = TableMemory()
        self._board: TensorBoardDashboard | None = None
        self._opened = False

    def show(self, finding: Finding, *, seen: bool = False) -> None:
        """Log one finding; a second one at the same step adds no second point to its charts."""
        values, step = scalars(finding.head, finding.record), finding.record.step
        if values and not seen:
            self.logger.log_metrics(values, step=step)
        self._open()
        if self._board is not None:
            self._board.show(finding, seen=seen)
            return
        tables = tables_of(finding)
        changed = self._tables.changed(tables)
        for tag, table in tables.items():
            write_table(self.logger, tag, table, step, changed=tag in changed)

    def finish(self, finding: Finding, layer: OutputLayer) -> None:
        """Show the layer that training ended with, where the logger can."""
        if self._board is not None:
            self._board.finish(finding, layer)

    def _open(self) -> None:
        """Find what the logger writes with; asking for it may open files or a connection."""
        if not self._opened:
            writer = getattr(self.logger, "experiment", None)
            self._opened = True
            if callable(getattr(writer, "add_text", None)):
                self._board = TensorBoardDashboard(writer, self._heads, scalars=False)
