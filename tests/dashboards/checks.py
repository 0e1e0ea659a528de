"""Real checks of small layers, for dashboards to show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.finding import Finding
from unarg_callback.monitoring.head_monitor import HeadMonitor


def layer(east: float = 2.0, names: Sequence[str] | None = None) -> OutputLayer:
    """Three corners of a triangle and a row that moves east; it is inside from -0.5 to 0.5."""
    return OutputLayer([[0.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [east, 0.0]], names=names)


def finding_of(monitor: HeadMonitor) -> Finding:
    """What the last check of a monitor found."""
    record = monitor.records[-1]
    return Finding(
        head=monitor.head,
        record=record,
        report=monitor.last_report,
        at_risk=monitor.at_risk if record.skipped is None else (),
        provable_since=monitor.provable_since,
        potential_since=monitor.potential_since,
        events=monitor.last_events,
    )


def findings(
    head: str = "generator",
    easts: Sequence[float] = (2.0, 1.0, 0.0),
    names: Sequence[str] | None = ("a", "b", "c", "d"),
    domain: str = "box:10",
) -> Iterator[Finding]:
    """One check every 50 steps. With the defaults class 3 is lost at the third."""
    monitor = HeadMonitor(domain, head=head)
    for number, east in enumerate(easts):
        monitor.check(layer(east, names), 50 * number)
        yield finding_of(monitor)


def skipped(head: str = "generator") -> Finding:
    """A check that NaN prevented."""
    monitor = HeadMonitor("box:10", head=head)
    monitor.skip(7, "weight has NaN", not_finite=True)
    return finding_of(monitor)
