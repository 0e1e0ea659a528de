"""The Lightning callback: hooks, loggers and state. What it does is in monitor.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.utilities.cloud_io import get_filesystem
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_warn

from unarg_callback.checkpoints.labels import read_labels
from unarg_callback.dashboards.tables import (
    Table,
    head_name,
    risk_table,
    risk_tag,
    scalars,
    table,
    text_tag,
)
from unarg_callback.devices import usable_device
from unarg_callback.errors import NotFiniteError, UnargError
from unarg_callback.geometry.layer import OutputLayer, parse_ids
from unarg_callback.monitoring.cadence import Cadence, Schedule
from unarg_callback.monitoring.events import Event
from unarg_callback.monitoring.head_monitor import HeadMonitor
from unarg_callback.monitoring.record import CheckRecord
from unarg_callback.report import Report
from unarg_callback.snapshots.snapshot import FoundLayer, find_layer, take_snapshot


class UnargmaxabilityMonitor(Callback):
    """Watches which classes of an output layer no input can make the argmax.

    Every ``every_n_steps`` optimizer steps, and once more when training ends, the layer is copied
    and verified. To every logger of the trainer go, at ``trainer.global_step``:

    * ``unarg/<head>/potential``, ``.../provable``, ``.../undecided``, ``.../duplicates``: numbers
      of classes;
    * ``unarg_lead/<head>/min``, ``.../p01``, ``.../p10``, ``.../p50``: leads of the argmaxable
      classes relative to the range of the logits, the lowest and three quantiles;
    * ``unarg_cost/<head>/seconds``, ``.../reused``, ``.../late_steps``, ``.../reflections``: what
      the check took, the share of classes that it settled by what was known, and how many steps it
      came later than it was due;
    * ``unarg/<head>/unargmaxable``: a table of who they are, since which step, and who beats them,
      whenever it has changed. TensorBoard shows it as text, a logger with ``log_text`` (Weights &
      Biases) as a table; for any other the latest is kept in ``unargmaxable-<head>.md`` where the
      logger keeps its files;
    * ``unarg/<head>/at_risk``: in the same way, the argmaxable classes that lead by little or by
      less at every check.

    Each check starts from the proofs of the last one, which a checkpoint holds as well. Checks take
    at most ``max_overhead`` of training time: one that needs more leaves the least urgent classes
    undecided until the next, or waits, and a warning tells when one came more than an interval
    late. Only the check at the end of training is as long as it needs to be, which can be longer
    than a short training; ``time_limit`` bounds it too.

    The numbers are also in ``trainer.callback_metrics``, so that ``EarlyStopping`` and
    ``ModelCheckpoint`` can monitor them; a check that was skipped leaves those of the last.
    ``<head>`` is ``name``, or the layer's attribute path.

    ``trainer.global_step`` counts the steps of all optimizers together: with two in manual
    optimization it grows by two a batch. Accumulated batches are one step.

    The weights checked are the parameters as they are: under mixed precision the master weights,
    beside weight averaging the raw ones (at the end of training, whichever callback comes first
    decides). A layer with NaN or inf is not checked: one warning says so, ``last_report`` is None
    until the next check, and training goes on, as it does after any other failure of a check.
    With several processes the first one checks and sends the numbers to the others, which wait; a
    layer sharded over processes is refused at the start. With ``ddp_spawn`` the processes that
    trained are gone afterwards, and ``records`` and ``last_report`` with them.

    Args:
        layer: attribute path of the layer, such as "decoder.generator". Default: the only
            ``nn.Linear`` with more outputs than inputs.
        every_n_steps: optimizer steps between checks; 0 checks only at the end of training.
        labels: class names, a list or the path of a file that holds them (JSON, or one a line).
            May also be assigned before training starts.
        domain: where the layer's input may lie: "box:R", "box:LO,HI", "nonnegative:HI" or "free".
        exclude: classes that take no part: an id, a list of them or text such as "0,5,10-20".
        patience: most search steps for a class before the exact stage takes over.
        time_limit: most seconds for a check; what it leaves open is undecided.
        device: where the search runs, such as "cuda:0". Default: the CPU.
        max_overhead: most time for checks as a share of training time; None for no limit.
        on_event: what to do when a class becomes provably unargmaxable, or is argmaxable again, or
            the layer has NaN: "log", "warn", "stop" (training), "ignore", a callable that takes an
            :class:`~unarg_callback.monitoring.events.Event`, or its import path
            "package.module:function".
        name: the head's name in tags. Two monitors need different names or layers.

    Raises:
        UnargError: an argument can't be read. A layer that can't be found, or doesn't fit the
            names, raises when training starts.
    """

    def __init__(
        self,
        layer: str | None = None,
        every_n_steps: int = 100,
        labels: str | list[str] | None = None,
        domain: str = "box:100",
        exclude: str | int | list[int] | None = None,
        patience: int | None = None,
        time_limit: float | None = None,
        device: str | None = None,
        max_overhead: float | None = 0.03,
        on_event: str | Callable[[Event], Any] | None = "log",
        name: str | None = None,
    ) -> None:
        super().__init__()
        for what, value in (("layer", layer), ("name", name)):
            if value is not None and not isinstance(value, str):
                raise UnargError(f"{what} is {value!r}; expected text, or None")
        self.layer = layer
        self.labels = labels
        self.name = name
        self._excluded = _excluded_ids(exclude)
        self._device = device or "cpu"
        self._monitor = HeadMonitor(
            domain,
            patience=patience,
            time_limit=time_limit,
            device=self._device,
            max_overhead=max_overhead,
            on_event=on_event,
            head=head_name(layer or "", name),
        )
        self._schedule = Schedule(Cadence(every_n_steps), self._monitor.budget)
        # These two are set when training starts.
        self._path = layer
        self._names: tuple[str, ...] | None = None
        self._warned: set[str] = set()
        self._started = False
        self._shown: dict[str, object] = {}

    @property
    def last_report(self) -> Report | None:
        """What the last check of this process found, proofs included."""
        return self._monitor.last_report

    @property
    def records(self) -> list[CheckRecord]:
        """One record a check, in order of time; after a resume, with those before it."""
        return list(self._monitor.records)

    @property
    def head(self) -> str:
        """The head's part of each tag."""
        return head_name(self._path or "", self.name)

    @property
    def state_key(self) -> str:
        """One state a head: fixed when the callback is made."""
        return self._generate_state_key(head=self.name or self.layer)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and builtins only, so that a checkpoint loads with ``weights_only=True``."""
        last = self._schedule.cadence.last
        return {"last_step": last, "monitor": self._monitor.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint; what is missing in it is as at the start."""
        last = state_dict.get("last_step")
        self._schedule.cadence.last = last if isinstance(last, int) else None
        self._monitor.load_state_dict(state_dict.get("monitor", {}))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the layer, which exists and has its place only now, and see that names fit it."""
        found = find_layer(pl_module, self.layer)
        self._path = found.path
        self._names = self._read_names(found.classes)
        _require_fit(found, self._names, self._excluded)
        usable_device(self._device)
        self._monitor.domain.bounds(found.features)
        self._require_own_head(trainer)
        if self._schedule.restart(trainer.global_step):
            self._monitor.forget()
            self._monitor.budget.reset()
        self._monitor.head = self.head
        self._warned, self._shown = set(), {}
        if not trainer.loggers:
            rank_zero_warn(
                "UnargmaxabilityMonitor: the trainer has no logger, so what is found is only in "
                "`records` and `last_report` of the callback and in `trainer.callback_metrics`"
            )
        self._show_last(trainer)
        self._monitor.budget.start()

    def _show_last(self, trainer: Trainer) -> None:
        """After a resume, let others read what the last check found before there is a new one."""
        values: dict[str, float] = {}
        records = self._monitor.records
        if self._schedule.cadence.last is not None and records:
            values = scalars(self.head, records[-1])
        if trainer.world_size > 1:
            values = trainer.strategy.broadcast(values, src=0)
        trainer.callback_metrics.update({tag: torch.tensor(v) for tag, v in values.items()})

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Check if enough optimizer steps were taken since the last check, and time allows it."""
        step = trainer.global_step
        if not self._schedule.due(step):
            return
        ready = self._schedule.ready(step)
        if trainer.world_size > 1:
            # The first process keeps the time.
            ready = trainer.strategy.broadcast(ready, src=0)
        if ready:
            self._check(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check what training ended with, unless that was just done."""
        self._monitor.budget.stop()
        if trainer.global_step != self._schedule.cadence.last or self._unfinished(trainer):
            self._check(trainer, pl_module, final=True)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Stop the clock: what comes until the next fit is no training."""
        self._monitor.budget.stop()

    def _unfinished(self, trainer: Trainer) -> bool:
        """Whether the last check left something undecided for want of time, in any process."""
        report = self._monitor.last_report
        unfinished = report is not None and not report.complete
        if trainer.world_size > 1:
            unfinished = trainer.strategy.broadcast(unfinished, src=0)
        return unfinished

    def _require_own_head(self, trainer: Trainer) -> None:
        """Raise if another monitor that has started writes to the same tags."""
        for other in trainer.callbacks:  # type: ignore[attr-defined]
            same = isinstance(other, UnargmaxabilityMonitor) and other is not self
            if same and other._started and other.head == self.head:
                raise UnargError(
                    f"two monitors write to unarg/{self.head}; give one of them another name="
                )
        self._started = True

    def _read_names(self, classes: int) -> tuple[str, ...] | None:
        if isinstance(self.labels, str | Path):
            return tuple(read_labels(self.labels, classes))
        return None if self.labels is None else tuple(self.labels)

    def _check(self, trainer: Trainer, pl_module: LightningModule, *, final: bool = False) -> None:
        with self._monitor.budget.spending():
            self._check_now(trainer, pl_module, final)

    def _check_now(self, trainer: Trainer, pl_module: LightningModule, final: bool) -> None:
        step = trainer.global_step
        due = self._schedule.begin(step)
        # Reading these may be a collective: every process has to.
        metrics = trainer.callback_metrics
        values: dict[str, float] = {}
        if trainer.is_global_zero:
            record = self._record(pl_module, step, due, final)
            values = scalars(self.head, record)
            self._log(trainer, record, values)
        stop = self._monitor.handler.stop_requested
        if trainer.world_size > 1:
            # Every process decides by the same numbers when to stop and what to save.
            values, stop = trainer.strategy.broadcast((values, stop), src=0)
        if stop:
            self._monitor.handler.stop_requested = False
            trainer.should_stop = True
        metrics.update({tag: torch.tensor(value) for tag, value in values.items()})

    @torch.no_grad()
    def _record(self, pl_module: LightningModule, step: int, due: int, final: bool) -> CheckRecord:
        """Copy the layer and check it, or note why that can't be done; training goes on."""
        try:
            found = find_layer(pl_module, self._path)
            layer = take_snapshot(
                found, names=self._names, excluded=self._excluded, device=self._device
            )
            record = self._monitor.check(layer, step, due=due, final=final)
        except Exception as cause:  # A run of days must not end for its monitor.
            kind = "" if isinstance(cause, UnargError) else f"{type(cause).__name__}: "
            self._warn_once("check", f"no check at step {step}: {kind}{cause}")
            not_finite = isinstance(cause, NotFiniteError)
            return self._monitor.skip(step, f"{kind}{cause}", not_finite=not_finite)
        if self._schedule.late(due, step):
            share = self._monitor.max_overhead
            self._warn_once(
                "late",
                f"the check due at step {due} was made at step {step}: checks are thinned out to "
                f"take at most {share:.1%} of training time (max_overhead)",
            )
        return record

    def _warn_once(self, kind: str, text: str) -> None:
        """Warn at the first time of each kind; later ones can be seen in the logged values."""
        if kind not in self._warned:
            rank_zero_warn(f"UnargmaxabilityMonitor: {text}")
            self._warned.add(kind)

    def _log(self, trainer: Trainer, record: CheckRecord, values: dict[str, float]) -> None:
        monitor = self._monitor
        report = monitor.last_report if record.skipped is None else None
        tables = {
            text_tag(self.head): table(
                record, report, monitor.provable_since, monitor.potential_since
            )
        }
        if report is not None:
            tables[risk_tag(self.head)] = risk_table(record, report, monitor.at_risk)
        changed = {tag for tag, who in tables.items() if who.content != self._shown.get(tag)}
        self._shown.update({tag: who.content for tag, who in tables.items()})
        for logger in trainer.loggers:
            if values:
                logger.log_metrics(values, step=record.step)
            try:
                for tag, who in tables.items():
                    _write_table(logger, tag, who, record.step, tag in changed)
            except (OSError, ImportError, ValueError) as cause:
                # The numbers are with the logger already; the table is not worth a run.
                self._warn_once("table", f"the table of classes can't be written: {cause}")


def _excluded_ids(value: str | int | list[int] | None) -> tuple[int, ...]:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(value)
    return () if value is None else parse_ids(str(value))


def _require_fit(
    found: FoundLayer, names: tuple[str, ...] | None, excluded: tuple[int, ...]
) -> None:
    """Raise unless names and excluded ids fit the layer, whatever its weights hold."""
    OutputLayer(torch.zeros(found.classes, 1), names=names, excluded=excluded)


def _write_table(logger: Logger, tag: str, who: Table, step: int, changed: bool) -> None:
    """Show the table in the way a logger has for text: see :class:`UnargmaxabilityMonitor`."""
    add_text = getattr(getattr(logger, "experiment", None), "add_text", None)
    log_text = getattr(logger, "log_text", None)
    if add_text is not None:
        if changed:
            add_text(tag, who.markdown(), global_step=step)
    elif log_text is not None:
        if changed:
            log_text(
                key=tag,
                columns=list(who.columns),
                data=[list(row) for row in who.rows],
                step=step,
            )
    else:
        _write_file(logger, tag, who)


def _write_file(logger: Logger, tag: str, who: Table) -> None:
    """Keep the latest table in the logger's directory; a logger without one gets none."""
    folder = getattr(logger, "log_dir", None) or logger.save_dir
    if not isinstance(folder, str | Path):
        return
    files = get_filesystem(folder)
    files.makedirs(str(folder), exist_ok=True)
    head, what = tag.removeprefix("unarg/").rsplit("/", 1)
    path = f"{folder}/{what}-{head.replace('/', '_')}.md"
    with files.open(path, "w", encoding="utf-8") as file:
        file.write(who.markdown())
