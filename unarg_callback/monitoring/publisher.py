"""Hand findings to whoever shows or keeps them; what can't be written is not worth a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import UnargError
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.events import EventHandler
from unarg_callback.monitoring.finding import Finding, Outcome, Output
from unarg_callback.monitoring.tags import scalars
from unarg_callback.monitoring.warn import warn
from unarg_callback.snapshots.undisturbed import undisturbed


class Publisher:
    """Hands findings to outputs, and warns once of each kind of trouble.

    Args:
        outputs: where findings go.
        on_event: what to do when a class becomes unargmaxable or comes back; see
            :class:`EventHandler`.
        strict: whether an output that fails raises, rather than warns.
    """

    def __init__(
        self, outputs: Sequence[Output] = (), on_event: Any = None, *, strict: bool = False
    ) -> None:
        given: Any = outputs
        listed = list(given) if isinstance(given, Iterable) else [given]
        if isinstance(given, str) or not all(callable(getattr(o, "show", None)) for o in listed):
            raise UnargError(f"outputs is {given!r}; expected a list of objects with show()")
        self.outputs: list[Output] = listed
        self.strict = strict
        self.silent = False
        """Whether this process writes and warns nothing: on all ranks but the first."""
        self._handler = EventHandler.of(on_event)
        self._latest: dict[str, Finding] = {}
        self._warned: set[str] = set()
        self._held: tuple[Finding, ...] = ()

    def restart(self) -> None:
        """Begin another training: warn again, and of nothing shown before."""
        self._latest, self._warned, self._held = {}, set(), ()

    @property
    def latest(self) -> dict[str, Finding]:
        """The last finding of each head that was shown."""
        return dict(self._latest)

    def publish(
        self, findings: tuple[Finding, ...], ranks: Ranks, *, final: bool = False
    ) -> Outcome:
        """Show findings, and tell all ranks what they need to decide alike. A collective.

        Args:
            findings: of checks that ended, in order of time.
            ranks: the processes that checked together; the first one acts on events.
            final: whether no better findings of the same step can come.
        """
        values: dict[str, float] = {}
        for finding in findings:
            values.update(scalars(finding.head, finding.record))
        # What time cut short at the last step is finished at the end, which nobody knows yet.
        cut = not final and any(not finding.record.complete for finding in findings)
        show = self.hold if cut else self.show
        ranks.together(lambda: show(findings))
        if ranks.first:
            # Whatever a user's function does, training goes on from where it was.
            with undisturbed():
                self._handler.handle([event for f in findings for event in f.events])
        stop = self._handler.stop_requested
        self._handler.stop_requested = False
        values, stop = ranks.broadcast((values, stop))
        return Outcome(findings if ranks.first else (), values, stop)

    def hold(self, findings: Sequence[Finding]) -> None:
        """Keep findings back that may soon be replaced by better ones of the same step."""
        self._held = tuple(findings)

    def release(self, step: float = math.inf) -> None:
        """Show what was kept back, if it is of an earlier step than training is at by now."""
        if all(finding.record.step < step for finding in self._held):
            held, self._held = self._held, ()
            self.show(held)

    def replace(self, step: int) -> None:
        """Show what was kept back before better findings of ``step`` come.

        What is of this very step gets no point in charts; files have it.
        """
        held, self._held = self._held, ()
        self.show(held, superseded=any(finding.record.step == step for finding in held))

    def show(self, findings: Sequence[Finding], *, superseded: bool = False) -> None:
        """Hand each finding to every output.

        Args:
            findings: in order of time.
            superseded: whether others of the same step follow.
        """
        if self.silent:
            return
        for finding in findings:
            before, record = self._latest.get(finding.head), finding.record
            seen = before is not None and before.record.step == record.step
            if superseded:
                seen = True
                self._latest.pop(finding.head, None)
            else:
                self._latest[finding.head] = finding
            if record.skipped is not None:
                self.warn_once("skipped", f"no check at step {record.step}: {record.skipped}")
            for output in self.outputs:
                self._write(output, lambda o=output, f=finding, s=seen: o.show(f, seen=s))  # type: ignore[misc]

    def finish(self, head: str, layer: OutputLayer) -> None:
        """Hand the layer that training ended with to every output."""
        if self.silent:
            return
        for output in self.outputs:
            self._write(output, lambda o=output: o.finish(self._latest[head], layer))  # type: ignore[misc]

    def warn_once(self, kind: str, text: str) -> None:
        """Warn at the first time of each kind in a training; later ones show in the records."""
        if kind not in self._warned and not self.silent:
            self._warned.add(kind)
            warn(f"UnargmaxabilityMonitor: {text}")

    def __getstate__(self) -> dict[str, Any]:
        # Outputs hold open files, which stay in their process.
        return {**self.__dict__, "outputs": [], "_latest": {}}

    def _write(self, output: Output, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as cause:
            if self.strict:
                raise
            kind = type(output).__name__
            self.warn_once(
                f"output {self.outputs.index(output)}",
                f"{kind} can't write what was found: {type(cause).__name__}: {cause}",
            )
