"""What a run shows in TensorBoard, whoever trains: it remembers what is there already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unarg_callback.dashboards.charts import (
    LEAD_EDGES,
    distribution_tag,
    layout,
    lead_exponents,
)
from unarg_callback.dashboards.projector import write_projector
from unarg_callback.dashboards.tables import tables_of
from unarg_callback.dashboards.text import TableMemory
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.finding import Finding
from unarg_callback.monitoring.tags import scalars

_DENSE = 100
"""So many histograms are written as often as they change, so many more at every second check, so
many at every fourth and so on: their number grows with the logarithm of that of the checks."""


@dataclass
class _Histograms:
    """When a head's next histogram is due, in checks, and what the last one showed."""

    written: int = 0
    checks: int = 0
    due: int = 0
    last: NDArray[np.int64] | None = None

    def wanted(self, counts: NDArray[np.int64]) -> bool:
        """Count a check; tell whether its histogram should be written."""
        self.checks += 1
        if self.checks <= self.due or not counts.any():
            return False
        if self.last is not None and np.array_equal(counts, self.last):
            return False
        self.last = counts
        self.due = self.checks - 1 + 2 ** (self.written // _DENSE)
        self.written += 1
        return True


class TensorBoardDashboard:
    """Shows one check after another through a ``SummaryWriter``.

    * scalars of every check (unless something else logs them);
    * a custom layout with charts for all heads, once;
    * the tables of names, whenever they list others;
    * a histogram of the leads, when it has changed, ever more rarely in long runs;
    * at the end of training the projector: see
      :func:`~unarg_callback.dashboards.projector.write_projector`.

    What the writer has no method for is left out. Nothing is caught: besides what its methods say,
    a method may raise whatever the writer does, such as ``OSError`` when a disk is full or
    ``ImportError`` without tensorboard. What was shown before stays, and the next call goes on.

    Args:
        writer: ``torch.utils.tensorboard.SummaryWriter``, or what has some of its methods.
        heads: of all monitors that write to this run, for the layout, or what tells them at each
            check; others are added when they are first shown. TensorBoard shows the last layout of
            a run: where several dashboards write to one, each needs all heads.
        scalars: whether to write them.
    """

    def __init__(
        self,
        writer: Any,
        heads: Callable[[], Sequence[str]] | Sequence[str] = (),
        *,
        scalars: bool = True,
    ) -> None:
        self.writer = writer
        self._heads = heads if callable(heads) else lambda: heads
        self._shown: list[str] = []
        self._with_sets: list[str] = []
        self._attention: list[str] = []
        self._charted: tuple[list[str], ...] = ()
        self._scalars = scalars
        self._tables = TableMemory()
        self._histograms: dict[str, _Histograms] = {}

    def show(self, finding: Finding, *, seen: bool = False) -> None:
        """Show one check.

        Args:
            finding: of the check.
            seen: whether one of this head at the same step was shown: charts get no second point.
        """
        step = finding.record.step
        if self._scalars and not seen and self._has("add_scalar"):
            for tag, value in scalars(finding.head, finding.record).items():
                self.writer.add_scalar(tag, value, global_step=step)
        self._chart(finding)
        tables = tables_of(finding)
        for tag in sorted(self._tables.changed(tables)):
            if self._has("add_text"):
                self.writer.add_text(tag, tables[tag].markdown(), global_step=step)
        if not seen:
            self._show_leads(finding)

    def finish(self, finding: Finding, layer: OutputLayer) -> None:
        """Show the layer that training ended with in the projector.

        Args:
            finding: of its check, which :meth:`show` has shown.
            layer: what was checked.

        Raises:
            ValueError: the layer has another number of classes than the report.
            OSError: a file can't be written.
        """
        if self._has("add_embedding"):
            write_projector(self.writer, finding, layer)

    def _chart(self, finding: Finding) -> None:
        """Lay out the charts of all heads, once unless there are new ones."""
        head, record = finding.head, finding.record
        _note(self._shown, [head])
        _note(self._with_sets, [head] if record.label_sets else [])
        _note(self._attention, record.attention)
        heads = list(dict.fromkeys([*self._heads(), *self._shown]))
        charted = (heads, list(self._with_sets), list(self._attention))
        if charted != self._charted and self._has("add_custom_scalars"):
            # If this fails it isn't tried again: the charts are not worth a warning a check.
            self._charted = charted
            self.writer.add_custom_scalars(layout(*charted))

    def _show_leads(self, finding: Finding) -> None:
        if finding.report is None or not self._has("add_histogram"):
            return
        values = lead_exponents(finding.report)
        counts = np.histogram(values, bins=LEAD_EDGES)[0]
        if self._histograms.setdefault(finding.head, _Histograms()).wanted(counts):
            tag, step = distribution_tag(finding.head), finding.record.step
            self.writer.add_histogram(tag, values, global_step=step, bins=LEAD_EDGES)

    def _has(self, method: str) -> bool:
        return callable(getattr(self.writer, method, None))


def _note(known: list[str], names: Iterable[str]) -> None:
    known.extend(name for name in names if name not in known)
