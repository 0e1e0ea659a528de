"""Watch the output layers of a model while it trains, in any training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from torch import nn

from unarg_callback.distributed.ranks import Ranks
from unarg_callback.monitoring.background import Background
from unarg_callback.monitoring.budget import OverheadBudget
from unarg_callback.monitoring.cadence import Cadence, Schedule
from unarg_callback.monitoring.check_runner import CheckRunner
from unarg_callback.monitoring.events import Event
from unarg_callback.monitoring.examiner import Examiner
from unarg_callback.monitoring.finding import Finding, Outcome, Output
from unarg_callback.monitoring.head import MOST_GATHERED
from unarg_callback.monitoring.heads import make_heads
from unarg_callback.monitoring.publisher import Publisher
from unarg_callback.monitoring.settings import attention_watch, flag, head_choices, one_of, whole
from unarg_callback.monitoring.tags import scalars
from unarg_callback.monitoring.watched_heads import WatchedHeads

OnError = Literal["warn", "raise"]

_CREDIT = 0.5
"""Seconds that checks may take in all however short the training, so that small runs have some."""
_BEFORE_THE_END = 0.5
"""Share of its time that a monitor spends before the last check, which has much left to do."""
_PATIENCE = 60.0
"""Seconds to wait for a check in the background after training was interrupted."""


class Monitor(WatchedHeads):
    """Watches which classes of a model's output layers no input can make the argmax.

    It copies the layers every so many optimizer steps, checks the copies, each time from the proofs
    of the last check, and hands what it finds to its outputs. It never harms the run that it
    watches: it draws no random number from the global generators, leaves every mode as it was, and
    an exception in it is a warning.

    In several processes of ``torch.distributed`` each rank has a monitor and calls the same methods
    at the same steps. A check is divided among them, and what they return is the same on all.

    Args:
        layer: an attribute path such as "decoder.generator"; the module itself; or a function of
            the model that returns W or (W, b). Default: the only ``nn.Linear`` with more outputs
            than inputs. For several heads a list of paths, or a dictionary of any of these by name.
        every_n_steps: optimizer steps between checks; 0 for none of these.
        every_n_epochs: epochs between checks, in addition; 0 for none of these.
        at_start: whether to check what a training starts with, unless it is resumed.
        labels: class names, a list or the path of a file that holds them (JSON, or one a line).
        domain: where the layer's input may lie; see :meth:`Domain.of`.
        exclude: classes that take no part: an id, a list of them or text such as "0,5,10-20".
        bias: attribute path of a bias that the layer itself doesn't have.
        patience: most search steps for a class before the exact stage takes over.
        time_limit: most seconds for a check; what it leaves open is undecided.
        device: where the search runs, such as "cuda:0". Default: the CPU.
        max_overhead: most time for checks as a share of training time; None for no limit. Half of
            it goes to checks before the last, which is not limited.
        on_event: what to do when a class becomes unargmaxable or comes back; see
            :class:`EventHandler`.
        on_error: "warn": an exception in the monitor is a warning, once, and the monitor retires;
            "raise": it is raised.
        background: check in a thread, while training goes on. Findings come at a later step, with
            the step that they belong to. ``max_overhead`` then has no effect.
        observe: watch the input of each head while it trains, warn if it leaves the domain that
            was assumed, and keep its range in :attr:`activation_ranges`. The domain "observed" (or
            "observed:<margin>") does so anyway, and is the box of what was observed, 1.5 (or
            margin) times as wide; there is no check before the first input then.
        most_gathered: bytes of a layer sharded over ranks that each rank may be given whole. The
            rows of a larger one are checked where they are, if they are divided in order.
        name: the head's name in tags.
        rule: how the logits are read. None: as a :class:`~unarg_callback.heads.MultilabelHead` that
            the layer belongs to says, else the largest is the prediction. "absolute": the largest
            in size, of either sign. "threshold:T", "top", "sparsemax", "sparsegen:LAMBDA",
            "sparsehourglass:Q", or a rule of :mod:`unarg_callback.label_sets`: how they make a set
            of labels.
        label_sets: sets of labels to check as well: multi-hot, or lists of label ids; or a function
            of a training batch that returns them (see :meth:`see`), or its import path. None: the
            targets that the loss of a ``MultilabelHead`` gets while it trains. False: none.
        attention: count the keys of a batch that no query can put first, for all layers of
            ``SparseAttention`` and ``nn.MultiheadAttention``, or those at a list of paths.
        outputs: where findings go.

    ``labels``, ``domain``, ``exclude``, ``bias``, ``rule`` and ``label_sets`` may be dictionaries
    by head.

    Raises:
        UnargError: an argument can't be read.

    >>> import torch
    >>> model = torch.nn.Linear(2, 4, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[1, 0], [-1, 1], [-1, -1], [-0.1, 0]]))
    >>> monitor = Monitor(every_n_steps=10)
    >>> [monitor.step(model, step).records for step in (1, 2)][0][0].provable
    1
    """

    def __init__(
        self,
        layer: Any = None,
        every_n_steps: int = 100,
        *,
        every_n_epochs: int = 0,
        at_start: bool = True,
        labels: Any = None,
        domain: Any = "box:100",
        exclude: Any = None,
        bias: Any = None,
        patience: int | None = None,
        time_limit: float | None = None,
        device: str | None = None,
        max_overhead: float | None = 0.03,
        on_event: str | Callable[[Event], Any] | None = "log",
        on_error: OnError = "warn",
        background: bool = False,
        observe: bool = False,
        most_gathered: int = MOST_GATHERED,
        name: str | None = None,
        rule: Any = None,
        label_sets: Any = None,
        attention: bool | str | Sequence[str] = False,
        outputs: Sequence[Output] = (),
    ) -> None:
        self.on_error: OnError = one_of("on_error", on_error, get_args(OnError))
        self.every_n_epochs = whole("every_n_epochs", every_n_epochs)
        self.at_start = flag("at_start", at_start)
        background = flag("background", background)
        self.max_overhead = max_overhead
        self.publisher = Publisher(outputs, on_event, strict=on_error == "raise")
        """Hands findings to outputs; they may be assigned before training starts."""
        heads = make_heads(
            head_choices(layer, name),
            labels=labels,
            domain=domain,
            exclude=exclude,
            bias=bias,
            rule=rule,
            label_sets=label_sets,
            device=device or "cpu",
            patience=patience,
            time_limit=time_limit,
            observe=observe,
            most_gathered=most_gathered,
        )
        super().__init__(heads)
        self.budget = _budget(max_overhead, background=background)
        self._examiner = Examiner(
            heads, self.budget, divided=not background, attention=attention_watch(attention)
        )
        self._schedule = Schedule(Cadence(whole("every_n_steps", every_n_steps)), self.budget)
        self._background = Background[tuple[Finding, ...]]() if background else None
        self._runner = CheckRunner(
            self._examiner, self._schedule, self.publisher, self._background, max_overhead
        )
        self._running = False

    @property
    def retired(self) -> str | None:
        """Why the monitor checks no more in this training, or None."""
        return self._runner.retired

    @property
    def ranks(self) -> Ranks:
        """The processes that check together."""
        return self._examiner.ranks

    def start(self, model: nn.Module, step: int = 0) -> Outcome:
        """Begin to watch a training: find the layers and, with ``at_start``, check them.

        A collective. Call it when the model has its place, parameters and ranks.

        Args:
            model: holds the layers.
            step: optimizer steps taken so far; after a resume not 0.

        Raises:
            UnargError: there is no such layer, or names, excluded classes or the domain don't fit
                it. This is raised whatever ``on_error`` says: nothing is lost yet.
        """
        step = whole("step", step)
        self._runner.restart()
        self.ranks.close()
        self._examiner.ranks = Ranks.join()
        # A state may have reached some ranks only; what they decide by must be the same.
        cadence = self._schedule.cadence
        cadence.last = self.ranks.broadcast(cadence.last)
        try:
            self.ranks.together(lambda: self._open(model, step))
        except BaseException:
            self.close()
            raise
        self._running = True
        self.budget.start()
        fresh = cadence.last is None and not self._examiner.waits
        if self.ranks.broadcast(self.at_start and fresh):
            self._schedule.demand(step)
        return self._runner.visit(model, step)

    def step(self, model: nn.Module, step: int) -> Outcome:
        """Check if enough steps were taken since the last check, and time allows it.

        Call it after every optimizer step; it costs next to nothing where no check is due. A
        collective where one is.

        Args:
            model: holds the layers.
            step: optimizer steps taken so far. It may repeat (accumulated gradients) and jump
                (several optimizers): a multiple of ``every_n_steps`` that was passed counts once.

        Raises:
            UnargError: the first call begins to watch, as :meth:`start` does.
        """
        step = whole("step", step)
        if not self._running and self.retired is None:
            return self.start(model, step)
        return self._runner.visit(model, step)

    def see(self, batch: Any) -> None:
        """Hand a training batch to the functions given as ``label_sets``.

        Call it once a batch, where there are any. Not a collective.
        """
        if self._running and self.retired is None:
            for head in self._heads:
                head.labelling.see(batch)

    def pause(self) -> None:
        """Leave attention layers alone while the model is evaluated; not a collective.

        A hook keeps ``nn.TransformerEncoderLayer`` from the fast path that it has there.
        """
        if self._running:
            self._examiner.pause()

    def resume(self) -> None:
        """Watch them again."""
        if self._running:
            self._examiner.resume()

    def due(self, step: int) -> bool:
        """Whether a check is due at this step, or has been waiting for time; the same on all ranks.

        Args:
            step: optimizer steps taken so far.
        """
        return self.retired is None and self._schedule.due(whole("step", step))

    def epoch_end(self, model: nn.Module, step: int, epoch: int) -> Outcome:
        """Check if enough epochs have ended, and time allows it. A collective where that is so.

        Args:
            model: holds the layers.
            step: optimizer steps taken so far.
            epoch: number of the epoch that ended, from 0.
        """
        if self.every_n_epochs == 0 or (epoch + 1) % self.every_n_epochs:
            return Outcome()
        step = whole("step", step)
        self._schedule.demand(step)
        return self._runner.visit(model, step)

    def settle(self) -> Outcome:
        """Wait for a check in the background, as long as none of this training has ended.

        A collective. Whoever reads the numbers of the last check then finds some.
        """
        if not self._running or self._background is None:
            return Outcome()
        return self._collect(wait=not self.latest())

    def finish(self, model: nn.Module, step: int) -> Outcome:
        """Check what training ended with, unless that was just done, and stop watching.

        A collective. Waits for a check in the background.

        Args:
            model: holds the layers.
            step: optimizer steps taken in all.
        """
        step = whole("step", step)
        self.budget.stop()
        outcome = self._runner.finish(model, step) if self._running else Outcome()
        self.close()
        return outcome

    def interrupt(self) -> Outcome:
        """Stop watching after an exception in training; not a collective.

        A check in the background is asked to end, and what it has found by then isn't lost.
        """
        self.budget.stop()
        outcome = Outcome()
        if self._running and self.retired is None and self._background is not None:
            self._examiner.ranks = Ranks()
            self._background.stop()
            outcome = self._collect(wait=True, timeout=_PATIENCE)
        self.publisher.release()
        self.close()
        return outcome

    def close(self) -> None:
        """Stop watching at once; no effect the second time."""
        self._running = False
        self._examiner.close()
        self.ranks.close()

    def state_dict(self) -> dict[str, Any]:
        """What a later run needs to go on, proofs included: tensors and builtins.

        For each head some 0.6 of its size, ``50 (d + 1)`` bytes a class out of reach, and the
        latest 1,000 records.
        """
        return {
            "version": 3,
            "last_step": self._runner.last_step,
            "budget": self.budget.state_dict(),
            "heads": {head.name: head.state_dict() for head in self._heads},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave; what is missing in it is as at the start."""
        state = state if isinstance(state, Mapping) else {}
        last = state.get("last_step")
        self._schedule.cadence.last = last if isinstance(last, int) else None
        self._schedule.due_since = None
        budget, heads = state.get("budget"), state.get("heads")
        self.budget.load_state_dict(budget if isinstance(budget, Mapping) else {})
        self._load_heads(heads if isinstance(heads, Mapping) else {})

    def latest(self) -> dict[str, float]:
        """Numbers of the last check of each head, by tag."""
        if self._schedule.cadence.last is None:
            return {}
        return {
            tag: value
            for head in self._heads
            for record in head.monitor.records[-1:]
            for tag, value in scalars(head.name, record).items()
        }

    def _open(self, model: nn.Module, step: int) -> None:
        self.publisher.silent = not self.ranks.first
        self._examiner.open(model)
        self._load_late_heads()
        if self._schedule.restart(step):
            self.forget()
            self.budget.reset()

    def _collect(self, *, wait: bool = False, timeout: float | None = None) -> Outcome:
        return self._runner.collect(wait=wait, timeout=timeout)

    def __getstate__(self) -> dict[str, Any]:
        # It watches what runs in this process.
        return {**self.__dict__, "_running": False}


def _budget(max_overhead: float | None, *, background: bool) -> OverheadBudget:
    OverheadBudget(max_overhead)  # Refuses what is no share.
    share = None if max_overhead is None else max_overhead * _BEFORE_THE_END
    return OverheadBudget(None if background else share, credit=_CREDIT)
