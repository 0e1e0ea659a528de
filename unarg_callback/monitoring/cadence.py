"""At which optimizer steps a layer is checked, and what becomes of checks that must wait."""

from __future__ import annotations

from unarg_callback.errors import UnargError
from unarg_callback.monitoring.budget import OverheadBudget


class Cadence:
    """Tells when a multiple of ``every_n_steps`` has been passed since the last check.

    Steps may jump (several optimizers) or repeat (gradient accumulation): a multiple that was
    jumped over is due at the next step seen, and no step is due twice.

    Args:
        every_n_steps: at least 1, or 0 for never.
        at_start: whether step 0 is due, once.

    >>> cadence = Cadence(5)
    >>> for step in (0, 2, 4, 4, 6, 6, 8, 10):
    ...     if cadence.due(step):
    ...         cadence.mark(step)
    ...         print(step)
    6
    10
    """

    def __init__(self, every_n_steps: int, *, at_start: bool = False) -> None:
        if isinstance(every_n_steps, bool) or not isinstance(every_n_steps, int):
            raise UnargError(f"every_n_steps is {every_n_steps!r}; expected an integer")
        if every_n_steps < 0:
            raise UnargError(
                f"every_n_steps is {every_n_steps}; expected 1 or more, or 0 for never"
            )
        self.every_n_steps = every_n_steps
        self.at_start = at_start
        self.last: int | None = None
        """Step that was marked last, or None."""

    def due(self, step: int) -> bool:
        """Whether a check is due at this step; asking changes nothing."""
        if self.every_n_steps == 0 or step == self.last:
            return False
        if self.last is None and step == 0:
            return self.at_start
        return step // self.every_n_steps > (self.last or 0) // self.every_n_steps

    def mark(self, step: int) -> None:
        """Note that the check of this step was done."""
        self.last = step

    def restart(self, step: int) -> bool:
        """Begin at ``step``: a mark beyond it is of an earlier run; tells whether there was one."""
        earlier = self.last is not None and self.last > step
        if earlier:
            self.last = None
        return earlier


class Schedule:
    """A cadence whose checks wait until the budget affords them.

    A check that is due stays due until it is made; those that fall due meanwhile are one with it.

    Args:
        cadence: when checks are due.
        budget: when there is time for one.
    """

    def __init__(self, cadence: Cadence, budget: OverheadBudget) -> None:
        self.cadence = cadence
        self.budget = budget
        self.due_since: int | None = None
        """Step at which the check that waits fell due, or None."""

    def due(self, step: int) -> bool:
        """Tell whether a check is due at this step or has been waiting; the same in all ranks."""
        if self.due_since is None and self.cadence.due(step):
            self.due_since = step
        return self.due_since is not None

    def demand(self, step: int) -> None:
        """Make a check due at this step, whatever the cadence; no effect where one is."""
        if self.due_since is None and step != self.cadence.last:
            self.due_since = step

    def ready(self, step: int) -> bool:
        """Tell whether a check is due and there is time for it."""
        return self.due(step) and self.budget.affords()

    def begin(self, step: int) -> int:
        """Note that the check of this step begins; return the step at which it fell due."""
        due = step if self.due_since is None else self.due_since
        self.due_since = None
        self.cadence.mark(step)
        return due

    def late(self, due: int, step: int) -> bool:
        """Tell whether a check that fell due then is more than one interval late now."""
        return step - due > self.cadence.every_n_steps > 0

    def restart(self, step: int) -> bool:
        """Begin at ``step``; tells whether what was marked is of an earlier run."""
        self.due_since = None
        return self.cadence.restart(step)
