"""Make the checks of a training when they are due; one that fails ends the checks, not the run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from torch import nn

from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import UnargError
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.monitoring.background import Background
from unarg_callback.monitoring.cadence import Schedule
from unarg_callback.monitoring.copies import Copy
from unarg_callback.monitoring.examiner import Examiner
from unarg_callback.monitoring.finding import Finding, Outcome
from unarg_callback.monitoring.publisher import Publisher


class CheckRunner:
    """Copies layers at the steps where a check is due, has the copies checked, and publishes.

    An exception in any of this retires it, unless the publisher is strict: until :meth:`restart` it
    does nothing any more, and a warning says why.

    Args:
        examiner: copies and checks.
        schedule: when a check is due, and when there is time for it.
        publisher: takes what was found.
        background: where checks run beside training; None for in line.
        max_overhead: the share of training time that a warning of a late check names.
    """

    def __init__(
        self,
        examiner: Examiner,
        schedule: Schedule,
        publisher: Publisher,
        background: Background[tuple[Finding, ...]] | None,
        max_overhead: float | None,
    ) -> None:
        self.retired: str | None = None
        """Why there are no more checks in this training, or None."""
        self._examiner = examiner
        self._schedule = schedule
        self._publisher = publisher
        self._background = background
        self._max_overhead = max_overhead
        self._before: int | None = None

    @property
    def last_step(self) -> int | None:
        """Step of the last check whose findings are known, or None."""
        beside = self._background is not None and self._background.busy
        # What a check in the background is finding isn't in a saved state: it will be due again.
        return self._before if beside else self._schedule.cadence.last

    def restart(self) -> None:
        """Begin another training."""
        self.retired = None
        self._publisher.restart()

    def visit(self, model: nn.Module, step: int) -> Outcome:
        """Publish what has ended, and check if that is due. A collective where it is."""
        return self._guarded(step, lambda: self._visit(model, step))

    def finish(self, model: nn.Module, step: int) -> Outcome:
        """Check what training ended with, unless that was just done. A collective."""
        return self._guarded(step, lambda: self._last_visit(model, step))

    def collect(self, *, wait: bool = False, timeout: float | None = None) -> Outcome:
        """Publish what a check in the background has found. A collective.

        Args:
            wait: for a check that is still running.
            timeout: seconds to wait at most.
        """
        return self._guarded(0, lambda: self._collect(wait=wait, timeout=timeout))

    def _visit(self, model: nn.Module, step: int) -> Outcome:
        self._publisher.release(step)
        due = self._schedule.due(step)
        if not due and (self._background is None or not self._ranks.alone):
            return Outcome()
        outcome = self._collect()
        # The first rank keeps the time.
        if due and self._ranks.broadcast(self._ready(step)):
            outcome = _together(outcome, self._check(model, step))
        return outcome

    def _last_visit(self, model: nn.Module, step: int) -> Outcome:
        outcome = self._collect(wait=True)
        unchecked = step != self._schedule.cadence.last or self._examiner.unfinished
        # Another callback may have put averaged weights there since the last step.
        again = self._ranks.broadcast(unchecked) or self._ranks.broadcast(
            self._examiner.moved(model)
        )
        if not again:
            self._publisher.release()
        else:
            self._publisher.replace(step)
            outcome = _together(outcome, self._check(model, step, final=True))
        self._publish_ends(model)
        self._examiner.gather_observations()
        return outcome

    @property
    def _ranks(self) -> Ranks:
        return self._examiner.ranks

    def _ready(self, step: int) -> bool:
        idle = self._background is None or not self._background.busy
        return idle and self._schedule.ready(step)

    def _check(self, model: nn.Module, step: int, *, final: bool = False) -> Outcome:
        self._before = self._schedule.cadence.last
        due = self._schedule.begin(step)
        examiner = self._examiner
        with self._schedule.budget.spending():
            copies = examiner.copy(model)
            self._warn_of(copies, step, due)
            beside = self._background is not None and not examiner.scattered(copies)
            if self._background is not None and beside and not final:
                stop = self._background.stopping
                if examiner.ranks.first:
                    self._background.submit(
                        lambda: examiner.examine(copies, step, due, limited=False, stop=stop)
                    )
                return Outcome()
            findings = self._ranks.together(
                lambda: examiner.examine(copies, step, due, limited=not final)
            )
            return self._publisher.publish(findings, self._ranks, final=final)

    def _collect(self, *, wait: bool = False, timeout: float | None = None) -> Outcome:
        background = self._background
        if background is None:
            return Outcome()
        ready = background.ended or (wait and background.busy)
        if not self._ranks.broadcast(ready):
            return Outcome()
        found = self._ranks.together(lambda: background.collect(wait=wait, timeout=timeout))
        return self._publisher.publish(found or (), self._ranks)

    def _publish_ends(self, model: nn.Module) -> None:
        """Hand the layers that training ended with to the outputs."""
        examiner, publisher = self._examiner, self._publisher
        heads = examiner.ranks.broadcast(list(publisher.latest) if publisher.outputs else [])
        for head in examiner.heads:
            if head.name in heads:
                layer = examiner.copy_one(head, model).layer
                if isinstance(layer, OutputLayer):
                    examiner.ranks.together(lambda: publisher.finish(head.name, layer))  # noqa: B023

    def _warn_of(self, copies: Sequence[Copy], step: int, due: int) -> None:
        """Tell what is wrong with a check, before it is made. A collective."""
        self._tell_late(due, step)
        for name, told in self._examiner.left_domains().items():
            self._publisher.warn_once(f"domain of {name}", f"head {name}: {told}")
        if self._before is not None:  # Before the first step there is nothing to see.
            for what, told in self._examiner.unseen(copies).items():
                self._publisher.warn_once(what, told)

    def _tell_late(self, due: int, step: int) -> None:
        if not self._schedule.late(due, step):
            return
        why = "the one before it was still running in the background"
        if self._background is None:
            share = f"{self._max_overhead:.1%} of training time (max_overhead)"
            why = f"checks are thinned out to take at most {share}"
        told = f"the check due at step {due} was made at step {step}: {why}"
        self._publisher.warn_once("late", told)

    def _guarded(self, step: int, work: Callable[[], Outcome]) -> Outcome:
        """Do something; if it fails, the monitor retires and training goes on."""
        if self.retired is not None:
            return Outcome()
        try:
            return work()
        except Exception as cause:
            if self._publisher.strict:
                raise
            self._retire(step, cause)
            return Outcome()

    def _retire(self, step: int, cause: Exception) -> None:
        """Check no more in this training; every rank does so at the same step."""
        self.retired = _told(cause)
        self._publisher.release()
        for head in self._examiner.heads:
            head.monitor.skip(step, f"the monitor has retired: {self.retired}")
        self._schedule.budget.stop()
        logging.getLogger("unarg_callback").debug("the monitor failed", exc_info=cause)
        self._publisher.warn_once(
            "retired",
            f"it failed at step {step} and checks no more in this training, which goes on: "
            f"{self.retired} (on_error='raise' raises it)",
        )


def _together(first: Outcome, second: Outcome) -> Outcome:
    return Outcome(
        first.findings + second.findings,
        {**first.values, **second.values},
        first.stop or second.stop,
    )


def _told(cause: BaseException) -> str:
    kind = "" if isinstance(cause, UnargError) else f"{type(cause).__name__}: "
    return f"{kind}{cause}"
