"""The Lightning callback: hooks, loggers and state. What it does is in monitoring/monitor.py."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from unarg_callback.dashboards.json_lines import JsonLines
from unarg_callback.dashboards.loggers import LoggerOutput
from unarg_callback.errors import UnargError
from unarg_callback.monitoring.activation_range import ActivationRange
from unarg_callback.monitoring.events import Event
from unarg_callback.monitoring.finding import Outcome, Output
from unarg_callback.monitoring.head import MOST_GATHERED
from unarg_callback.monitoring.head_monitor import HeadMonitor
from unarg_callback.monitoring.label_set_monitor import LabelSetFinding
from unarg_callback.monitoring.monitor import Monitor, OnError
from unarg_callback.monitoring.record import CheckRecord
from unarg_callback.report import Report

if TYPE_CHECKING:
    from pytorch_lightning import LightningModule, Trainer
    from pytorch_lightning.callbacks import Callback as LightningCallback


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # It was taken out of sys.modules by force.
        return False


def _lightning_callbacks() -> tuple[type, ...]:
    """The ``Callback`` of each Lightning package that is installed.

    ``pytorch_lightning`` and ``lightning.pytorch`` are two packages with one code, and each accepts
    only callbacks that are instances of its own class.
    """
    found: list[type] = []
    for package, module in (("pytorch_lightning", ""), ("lightning", ".pytorch")):
        if _installed(package):
            found.append(import_module(f"{package}{module}.callbacks").Callback)
    if not found:
        raise ImportError(
            "UnargmaxabilityMonitor needs pytorch-lightning or lightning; a training loop without "
            "them can use unarg_callback.Monitor"
        )
    return tuple(found)


if not TYPE_CHECKING:
    LightningCallback = type("LightningCallback", _lightning_callbacks(), {"__module__": __name__})


class UnargmaxabilityMonitor(LightningCallback):
    """Watches which classes of an output layer no input can make the argmax.

    Every ``every_n_steps`` optimizer steps, and when training starts and ends, the layer is copied
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
      less at every check;
    * for a head that puts out sets of labels, ``unarg_labels/<head>/out_of_reach``,
      ``.../undecided``, ``.../seen``: numbers of the different sets that training has seen;
      ``.../rows_out_of_reach``: the share of its rows whose set is out of reach; and a table,
      ``unarg/<head>/label_sets``;
    * for attention layers that are asked for, ``unarg_attention/<layer>/never_first``,
      ``.../undecided``, ``.../keys``: numbers of keys, over all heads, of two sequences of the last
      batch.

    TensorBoard also gets one custom layout for all heads, histograms of the leads, and when
    training ends a projector view. ``unargmaxability.jsonl`` in ``trainer.log_dir`` has one record
    a check.

    Each check starts from the proofs of the last one, which a checkpoint holds as well. Checks take
    at most ``max_overhead`` of training time: one that needs more leaves the least urgent classes
    undecided until the next, or waits, and a warning tells when one came more than an interval
    late. Only the check at the end of training is as long as it needs to be, which can be longer
    than a short training; ``time_limit`` bounds it too.

    The numbers are also in ``trainer.callback_metrics``, so that ``EarlyStopping`` and
    ``ModelCheckpoint`` can monitor them; a check that was skipped leaves those of the last. With
    ``background`` the first validation waits for the first check. Where the first check is skipped
    there are no numbers yet: give ``EarlyStopping`` ``strict=False`` if that may happen.
    ``<head>`` is ``name``, the key in ``layer``, or the layer's attribute path.

    ``trainer.global_step`` counts the steps of all optimizers together: with two in manual
    optimization it grows by two a batch. Accumulated batches are one step.

    The weights checked are the parameters as they are: under mixed precision the master weights,
    beside weight averaging the raw ones (at the end of training, whichever callback comes first
    decides). A layer with NaN or inf is not checked: one warning says so, ``last_report`` is None
    until the next check, and training goes on. After any other exception in it the monitor retires.
    Several processes divide a check among them; the first one writes. With ``ddp_spawn`` the
    processes that trained are gone afterwards, and ``records`` and ``last_report`` with them; what
    the loggers wrote and ``unargmaxability.jsonl`` stay.

    Args:
        layer: attribute path of the layer, such as "decoder.generator"; the module itself; or a
            function of the model that returns W or (W, b). Default: the only ``nn.Linear`` with
            more outputs than inputs. For several heads a list of paths, or a dictionary of any of
            these by name; then ``labels``, ``domain``, ``exclude`` and ``bias`` may be dictionaries
            as well.
        every_n_steps: optimizer steps between checks; 0 for none of these.
        labels: class names, a list or the path of a file that holds them (JSON, or one a line).
            May also be assigned before training starts.
        domain: where the layer's input may lie: "box:R", "box:LO,HI", "nonnegative:HI" or "free";
            or "observed": the box of what was observed in this training, 1.5 times as wide
            ("observed:<margin>" for another margin), which grows when the input leaves it.
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
        every_n_epochs: epochs between checks, in addition; 0 for none of these.
        at_start: whether to check what a training starts with, unless it is resumed.
        bias: attribute path of a bias that the layer itself doesn't have.
        on_error: "warn": an exception in the monitor is one warning with its cause, and the monitor
            retires; "raise": it ends training.
        background: check in a thread, while training goes on; findings come at a later batch, with
            the step that they belong to. ``max_overhead`` then has no effect.
        observe: watch the layer's input while it trains, warn if it leaves the domain that was
            assumed, and keep its range in :attr:`activation_ranges`, as the paper's Table 9. The
            domain "observed" does so anyway.
        most_gathered: bytes of a layer sharded over processes that each may be given whole. The
            rows of a larger one are checked where they are, if they are divided in order.
        rule: how logits are read, by default as a :class:`~unarg_callback.heads.MultilabelHead`
            says: "absolute" (the largest in size is the prediction), or how they make a set of
            labels: "threshold:T", "top", "sparsemax", "sparsegen:LAMBDA", "sparsehourglass:Q".
        label_sets: sets of labels to check as well; or a function of a training batch that returns
            them, or its import path. Default: the targets that the loss of a ``MultilabelHead``
            gets while it trains. False: none.
        attention: count, for each attention layer (or those at a list of paths), the keys of a
            batch that no query can put first.

    Raises:
        UnargError: an argument can't be read. A layer that can't be found, or doesn't fit the
            names, raises when training starts.
    """

    def __init__(
        self,
        layer: str | list[str] | dict[str, Any] | Callable[..., Any] | None = None,
        every_n_steps: int = 100,
        labels: str | list[str] | dict[str, Any] | None = None,
        domain: str | dict[str, str] = "box:100",
        exclude: str | int | list[int] | dict[str, Any] | None = None,
        patience: int | None = None,
        time_limit: float | None = None,
        device: str | None = None,
        max_overhead: float | None = 0.03,
        on_event: str | Callable[[Event], Any] | None = "log",
        name: str | None = None,
        every_n_epochs: int = 0,
        at_start: bool = True,
        bias: str | dict[str, str] | None = None,
        on_error: OnError = "warn",
        background: bool = False,
        observe: bool = False,
        most_gathered: int = MOST_GATHERED,
        rule: Any = None,
        label_sets: Any = None,
        attention: bool | str | list[str] = False,
    ) -> None:
        super().__init__()
        self.monitor = Monitor(
            layer,
            every_n_steps,
            every_n_epochs=every_n_epochs,
            at_start=at_start,
            labels=labels,
            domain=domain,
            exclude=exclude,
            bias=bias,
            patience=patience,
            time_limit=time_limit,
            device=device,
            max_overhead=max_overhead,
            on_event=on_event,
            on_error=on_error,
            background=background,
            observe=observe,
            most_gathered=most_gathered,
            name=name,
            rule=rule,
            label_sets=label_sets,
            attention=attention,
        )
        """Does the work, without Lightning."""
        self._key = "+".join(self.monitor.heads)
        self._started = False

    @property
    def heads(self) -> dict[str, HeadMonitor]:
        """What is known of each head, by its name in tags."""
        return self.monitor.heads

    @property
    def activation_ranges(self) -> dict[str, ActivationRange]:
        """What was observed of each watched head's input: see :attr:`Monitor.activation_ranges`."""
        return self.monitor.activation_ranges

    @property
    def label_sets(self) -> dict[str, LabelSetFinding]:
        """What the last check of label sets found, by the head's name."""
        return self.monitor.label_sets

    @property
    def head(self) -> str:
        """The only head's part of each tag."""
        return "+".join(self.monitor.heads)

    @property
    def labels(self) -> Any:
        """Class names of the only head; they may be assigned before training starts."""
        return self.monitor.labels

    @labels.setter
    def labels(self, labels: Any) -> None:
        self.monitor.labels = labels

    @property
    def last_report(self) -> Report | None:
        """What the last check of the only head found, proofs included."""
        return self.monitor.last_report

    @property
    def records(self) -> list[CheckRecord]:
        """One record a check of the only head, in order of time; after a resume all of them."""
        return self.monitor.records

    @property
    def state_key(self) -> str:
        """One state for the heads of a monitor: fixed when the callback is made."""
        return self._generate_state_key(head=self._key)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and builtins only, so that a checkpoint loads with ``weights_only=True``.

        For each head some 0.6 of its size, ``50 (d + 1)`` bytes a class out of reach, and the
        latest 1,000 records.
        """
        return self.monitor.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint; what is missing in it is as at the start."""
        self.monitor.load_state_dict(state_dict)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the layer, which exists and has its place only now, and check it."""
        # Reading this is a collective.
        folder = trainer.log_dir
        self.monitor.publisher.outputs = []
        if trainer.is_global_zero and trainer.loggers:
            self.monitor.publisher.outputs = self._outputs(trainer, folder)
        self._started = True
        outcome = self.monitor.start(_model(trainer, pl_module), trainer.global_step)
        self._require_own_heads(trainer)
        if not trainer.loggers:
            self.monitor.publisher.warn_once(
                "logger",
                "the trainer has no logger, so what is found is only in `records` and "
                "`last_report` of the callback and in `trainer.callback_metrics`",
            )
        # After a resume others may read what the last check found before there is a new one.
        values = self.monitor.ranks.broadcast(self.monitor.latest())
        self._act(trainer, Outcome(values={**values, **outcome.values}, stop=outcome.stop))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Check if enough optimizer steps were taken since the last check, and time allows it."""
        self.monitor.see(batch)
        self._act(trainer, self.monitor.step(_model(trainer, pl_module), trainer.global_step))

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Have numbers for those that read them at its end, and leave the model alone."""
        self._act(trainer, self.monitor.settle())
        self.monitor.pause()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Watch the model again."""
        self.monitor.resume()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check if enough epochs have ended, and time allows it."""
        step, epoch = trainer.global_step, trainer.current_epoch
        self._act(trainer, self.monitor.settle())
        self._act(trainer, self.monitor.epoch_end(_model(trainer, pl_module), step, epoch))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check what training ended with, unless that was just done."""
        self._act(trainer, self.monitor.finish(_model(trainer, pl_module), trainer.global_step))
        self._started = False

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Write what a check in the background found, and stop watching."""
        self.monitor.interrupt()
        self._started = False

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the group of processes."""
        if stage == "fit":
            self.monitor.close()

    def _outputs(self, trainer: Trainer, folder: str | None) -> list[Output]:
        heads = self._heads_of_run(trainer)
        outputs: list[Output] = [LoggerOutput(logger, heads) for logger in trainer.loggers]
        if folder is not None and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            outputs.append(JsonLines(folder))
        return outputs

    def _act(self, trainer: Trainer, outcome: Outcome) -> None:
        """Every process decides by the same numbers when to stop and what to save."""
        if outcome.stop:
            trainer.should_stop = True
        if outcome.values:
            # Reading these may be a collective.
            metrics = trainer.callback_metrics
            metrics.update({tag: torch.tensor(value) for tag, value in outcome.values.items()})

    def _heads_of_run(self, trainer: Trainer) -> Callable[[], tuple[str, ...]]:
        """For the layout: heads of all monitors that have begun."""

        def heads() -> tuple[str, ...]:
            return tuple(
                head
                for callback in trainer.callbacks  # type: ignore[attr-defined]
                if isinstance(callback, UnargmaxabilityMonitor) and callback._started
                for head in callback.heads
            )

        return heads

    def _require_own_heads(self, trainer: Trainer) -> None:
        """Raise if another monitor that has begun writes to the same tags."""
        for other in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(other, UnargmaxabilityMonitor) and other is not self and other._started:
                for head in set(self.heads) & set(other.heads):
                    raise UnargError(
                        f"two monitors write to unarg/{head}; give one of them another name="
                    )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_started": False}


def _model(trainer: Trainer, pl_module: LightningModule) -> nn.Module:
    """Where the layers are: FSDP keeps those that no inner unit has in the outermost wrapper."""
    wrapped = trainer.strategy.model
    if type(wrapped).__name__ == "FullyShardedDataParallel":
        return wrapped  # type: ignore[return-value]
    return pl_module
