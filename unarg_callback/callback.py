"""The Lightning callback: hooks, loggers and state. What it does is in monitor.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning_fabric.utilities.cloud_io import get_filesystem
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_warn

from unarg_callback.checkpoints.labels import read_labels
from unarg_callback.devices import usable_device
from unarg_callback.errors import UnargError
from unarg_callback.geometry.layer import OutputLayer, parse_ids
from unarg_callback.monitor import Cadence, CheckRecord, Monitor
from unarg_callback.report import Report
from unarg_callback.snapshot import FoundLayer, find_layer, take_snapshot
from unarg_callback.tensorboard import Table, head_name, scalars, table, text_tag


class UnargmaxabilityMonitor(Callback):
    """Watches which classes of an output layer no input can make the argmax.

    Every ``every_n_steps`` optimizer steps, and once more when training ends, the layer is copied
    and verified. To every logger of the trainer go, at ``trainer.global_step``:

    * ``unarg/<head>/potential``, ``.../provable``, ``.../undecided``, ``.../duplicates``: numbers
      of classes;
    * ``unarg_cost/<head>/seconds``, ``.../reflections``: what the check took;
    * ``unarg/<head>/unargmaxable``: a table of who they are, since which step, and who beats them,
      whenever it has changed. TensorBoard shows it as text, a logger with ``log_text`` (Weights &
      Biases) as a table; for any other the latest is kept in ``unargmaxable-<head>.md`` where the
      logger keeps its files.

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
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.labels = labels
        self.name = name
        self._excluded = _excluded_ids(exclude)
        self._device = device or "cpu"
        self._cadence = Cadence(every_n_steps)
        self._monitor = Monitor(
            domain, patience=patience, time_limit=time_limit, device=self._device
        )
        # These two are set when training starts.
        self._path = layer
        self._names: tuple[str, ...] | None = None
        self._warned = False
        self._started = False
        self._shown: object = None

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
        """Builtins only, so that a checkpoint loads with ``weights_only=True``."""
        return {"last_step": self._cadence.last, "monitor": self._monitor.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint; what is missing in it is as at the start."""
        self._cadence.last = state_dict.get("last_step")
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
        if self._cadence.restart(trainer.global_step):
            self._monitor.forget()
        self._warned, self._shown = False, None
        if not trainer.loggers:
            rank_zero_warn(
                "UnargmaxabilityMonitor: the trainer has no logger, so what is found is only in "
                "`records` and `last_report` of the callback and in `trainer.callback_metrics`"
            )

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Check if enough optimizer steps were taken since the last check."""
        if self._cadence.due(trainer.global_step):
            self._check(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check what training ended with, unless that was just done."""
        if trainer.global_step != self._cadence.last:
            self._check(trainer, pl_module)

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

    def _check(self, trainer: Trainer, pl_module: LightningModule) -> None:
        step = trainer.global_step
        self._cadence.mark(step)
        # Reading these may be a collective: every process has to.
        metrics = trainer.callback_metrics
        values: dict[str, float] = {}
        if trainer.is_global_zero:
            record = self._record(pl_module, step)
            values = scalars(self.head, record)
            self._log(trainer, record, values)
        if trainer.world_size > 1:
            # Every process decides by the same numbers when to stop and what to save.
            values = trainer.strategy.broadcast(values, src=0)
        metrics.update({tag: torch.tensor(value) for tag, value in values.items()})

    @torch.no_grad()
    def _record(self, pl_module: LightningModule, step: int) -> CheckRecord:
        """Copy the layer and check it, or note why that can't be done; training goes on."""
        try:
            found = find_layer(pl_module, self._path)
            layer = take_snapshot(
                found, names=self._names, excluded=self._excluded, device=self._device
            )
            return self._monitor.check(layer, step)
        except Exception as cause:  # A run of days must not end for its monitor.
            kind = "" if isinstance(cause, UnargError) else f"{type(cause).__name__}: "
            self._warn_once(f"no check at step {step}: {kind}{cause}")
            return self._monitor.skip(step, f"{kind}{cause}")

    def _warn_once(self, text: str) -> None:
        if not self._warned:
            rank_zero_warn(f"UnargmaxabilityMonitor: {text}")
            self._warned = True

    def _log(self, trainer: Trainer, record: CheckRecord, values: dict[str, float]) -> None:
        monitor = self._monitor
        report = monitor.last_report if record.skipped is None else None
        who = table(record, report, monitor.provable_since, monitor.potential_since)
        changed = who.content != self._shown
        self._shown = who.content
        for logger in trainer.loggers:
            if values:
                logger.log_metrics(values, step=record.step)
            try:
                _write_table(logger, self.head, who, record.step, changed)
            except (OSError, ImportError, ValueError) as cause:
                # The numbers are with the logger already; the table is not worth a run.
                self._warn_once(f"the table of classes can't be written: {cause}")


def _excluded_ids(value: str | int | list[int] | None) -> tuple[int, ...]:
    if isinstance(value, list):
        return tuple(value)
    return () if value is None else parse_ids(str(value))


def _require_fit(
    found: FoundLayer, names: tuple[str, ...] | None, excluded: tuple[int, ...]
) -> None:
    """Raise unless names and excluded ids fit the layer, whatever its weights hold."""
    OutputLayer(torch.zeros(found.classes, 1), names=names, excluded=excluded)


def _write_table(logger: Logger, head: str, who: Table, step: int, changed: bool) -> None:
    """Show the table in the way a logger has for text: see :class:`UnargmaxabilityMonitor`."""
    add_text = getattr(getattr(logger, "experiment", None), "add_text", None)
    log_text = getattr(logger, "log_text", None)
    if add_text is not None:
        if changed:
            add_text(text_tag(head), who.markdown(), global_step=step)
    elif log_text is not None:
        if changed:
            log_text(
                key=text_tag(head),
                columns=list(who.columns),
                data=[list(row) for row in who.rows],
                step=step,
            )
    else:
        _write_file(logger, head, who)


def _write_file(logger: Logger, head: str, who: Table) -> None:
    """Keep the latest table in the logger's directory; a logger without one gets none."""
    folder = getattr(logger, "log_dir", None) or logger.save_dir
    if not isinstance(folder, str | Path):
        return
    files = get_filesystem(folder)
    files.makedirs(str(folder), exist_ok=True)
    path = f"{folder}/unargmaxable-{head.replace('/', '_')}.md"
    with files.open(path, "w", encoding="utf-8") as file:
        file.write(who.markdown())
