"""The same monitor for a transformers ``Trainer``. What it does is in monitoring/monitor.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from unarg_callback.dashboards.json_lines import JsonLines
from unarg_callback.dashboards.summary_writer import TensorBoardDashboard
from unarg_callback.errors import LayerError, UnargError
from unarg_callback.files import replacing
from unarg_callback.monitoring.events import Event
from unarg_callback.monitoring.finding import Outcome, Output
from unarg_callback.monitoring.head import MOST_GATHERED
from unarg_callback.monitoring.monitor import Monitor, OnError
from unarg_callback.monitoring.settings import excluded_ids
from unarg_callback.snapshots.snapshot import find_layer

STATE_FILE = "unargmaxability.pt"
"""What a later run needs to go on, in each checkpoint's folder."""

_UNUSED = "<unused {}>"


class UnargmaxabilityTrainerCallback(TrainerCallback):
    """Watches which tokens of a language model no input can make the argmax.

    The layer is what the model's ``get_output_embeddings()`` returns, and its ``final_logits_bias``
    is added where it has one (Marian, BART). Rows that stand for no token of the tokenizer are
    excluded, as are tokens that generation masks (single ``bad_words_ids`` and
    ``suppress_tokens``); token names are those of the tokenizer.

    Each check writes a line of ``unargmaxability.jsonl`` in ``output_dir``, and scalars, tables,
    histograms and a layout to TensorBoard if ``report_to`` has it: in ``TENSORBOARD_LOGGING_DIR``,
    or else ``output_dir/runs/unargmaxability``. Each checkpoint gets ``unargmaxability.pt``,
    from which a resumed training goes on; it holds tensors and builtins, some 0.6 of the layer's
    size. It is looked for in ``args.resume_from_checkpoint``, then in ``args.output_dir``.

    ``state.global_step`` counts optimizer steps; batches that are accumulated are one.

    Args:
        every_n_steps: optimizer steps between checks; 0 for none of these.
        layer: attribute path, module or function, as for :class:`Monitor`. Default: the output
            embeddings.
        labels: class names, or None for those of the tokenizer.
        exclude: classes that take no part, besides those that stand for no token.
        outputs: where findings go as well.
        every_n_epochs: see :class:`Monitor`, as for all that follow.
        at_start: likewise.
        domain: likewise.
        bias: likewise.
        patience: likewise.
        time_limit: likewise.
        device: likewise.
        max_overhead: likewise.
        on_event: likewise.
        on_error: likewise.
        background: likewise.
        observe: likewise.
        most_gathered: likewise.
        name: likewise.
        rule: likewise.
        label_sets: likewise; a function of a batch is never called, as a callback gets no batch.
        attention: likewise.

    Raises:
        UnargError: an argument can't be read. A layer that can't be found raises when training
            starts.
    """

    def __init__(
        self,
        every_n_steps: int = 100,
        *,
        layer: Any = None,
        labels: Any = None,
        exclude: str | int | Iterable[int] | None = None,
        outputs: Iterable[Output] = (),
        every_n_epochs: int = 0,
        at_start: bool = True,
        domain: Any = "box:100",
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
        attention: bool | str | list[str] = False,
    ) -> None:
        self._layer, self._labels = layer, labels
        self._exclude, self._outputs = excluded_ids(exclude), list(outputs)
        self._writer: Any = None
        self._found: Any = None
        self._classes: int | None = None
        self._tokens: int | None = None
        self._options: dict[str, Any] = {
            "every_n_steps": every_n_steps,
            "every_n_epochs": every_n_epochs,
            "at_start": at_start,
            "domain": domain,
            "bias": bias,
            "patience": patience,
            "time_limit": time_limit,
            "device": device,
            "max_overhead": max_overhead,
            "on_event": on_event,
            "on_error": on_error,
            "background": background,
            "observe": observe,
            "most_gathered": most_gathered,
            "name": name,
            "rule": rule,
            "label_sets": label_sets,
            "attention": attention,
        }
        self.monitor = Monitor(layer, **self._options)
        """Does the work; made anew when training starts."""

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        processing_class: Any = None,
        **kwargs: Any,
    ) -> None:
        """Find the output embeddings, take up what a checkpoint has, and check them."""
        tokenizer = processing_class if processing_class is not None else kwargs.get("tokenizer")
        layer = output_embeddings_path(model) if self._layer is None else self._layer
        self._found = layer
        self._classes, self._tokens = _classes(model, layer), _size(tokenizer)
        labels, exclude = self._described(model, tokenizer)
        self.monitor = Monitor(layer, labels=labels, exclude=exclude, **self._options)
        if state.global_step:
            self._resume(args, state.global_step)
        self.monitor.publisher.outputs = self._where(args) if state.is_world_process_zero else []
        self._act(control, self.monitor.start(model, state.global_step))

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Check if enough optimizer steps were taken since the last check, and time allows it."""
        if self.monitor.due(state.global_step):
            self._follow(model, kwargs)
        self._act(control, self.monitor.step(model, state.global_step))

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Check if enough epochs have ended, and time allows it."""
        self._follow(model, kwargs)
        epoch = round(state.epoch or 0) - 1
        self._act(control, self.monitor.epoch_end(model, state.global_step, epoch))

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the proofs in the checkpoint's folder."""
        folder = Path(args.output_dir or ".", f"checkpoint-{state.global_step}")
        if not (args.should_save and folder.is_dir()):
            return
        try:
            with replacing(folder / STATE_FILE) as file:
                torch.save(self.monitor.state_dict(), file)
        except (OSError, RuntimeError) as cause:  # A full disk; torch has an error of its own.
            self.monitor.publisher.warn_once("save", f"{STATE_FILE} can't be written: {cause}")

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Check what training ended with, unless that was just done."""
        self._follow(model, kwargs)
        self.monitor.finish(model, state.global_step)
        if self._writer is not None:  # It has a thread and an open file.
            self._writer.close()
            self._writer = None

    def _described(self, model: Any, tokenizer: Any) -> tuple[Any, list[int]]:
        """Names of the classes there are, and ids of those that take no part."""
        classes, labels, exclude = self._classes, self._labels, set(self._exclude)
        if classes is not None:
            exclude |= {i for i in masked_ids(model) if i < classes}
            if hasattr(tokenizer, "get_vocab"):
                names = token_names(tokenizer, classes)
                exclude |= {index for index, known in enumerate(names) if known is None}
                if labels is None:
                    labels = [_UNUSED.format(i) if n is None else n for i, n in enumerate(names)]
        return labels, sorted(exclude)

    def _follow(self, model: Any, others: dict[str, Any]) -> None:
        """Rows that came while training may stand for no token, and old ones for new tokens."""
        tokenizer = others.get("processing_class") or others.get("tokenizer")
        if self._classes is None:
            return
        now = (_classes(model, self._found), _size(tokenizer))
        if now[0] is not None and now != (self._classes, self._tokens):
            self._classes, self._tokens = now
            self.monitor.describe(*self._described(model, tokenizer))

    def _act(self, control: TrainerControl, outcome: Outcome) -> None:
        if outcome.stop:
            control.should_training_stop = True

    def _where(self, args: TrainingArguments) -> list[Output]:
        outputs: list[Output] = [*self._outputs]
        if args.output_dir is not None:
            outputs.append(JsonLines(args.output_dir))
        report_to = args.report_to if isinstance(args.report_to, list) else [args.report_to]
        if {"tensorboard", "all"} & set(report_to):
            from torch.utils.tensorboard import SummaryWriter

            folder = os.environ.get("TENSORBOARD_LOGGING_DIR") or str(
                Path(args.output_dir or ".", "runs", "unargmaxability")
            )
            self._writer = SummaryWriter(folder)
            outputs.append(TensorBoardDashboard(self._writer))
        return outputs

    def _resume(self, args: TrainingArguments, step: int) -> None:
        """Go on from the checkpoint that training goes on from."""
        given = args.resume_from_checkpoint
        folders = [Path(given)] if isinstance(given, str) else []
        if args.output_dir is not None:
            folders.append(Path(args.output_dir, f"checkpoint-{step}"))
        files = [folder / STATE_FILE for folder in folders if (folder / STATE_FILE).is_file()]
        told = f"the checkpoint of step {step} has no {STATE_FILE}"
        try:
            for file in files[:1]:
                state = torch.load(file, map_location="cpu", weights_only=True)
                self.monitor.load_state_dict(state)
                return
        except Exception as cause:  # Whatever is in that file, training goes on.
            told = f"{files[0]} can't be read ({type(cause).__name__})"
        self.monitor.publisher.warn_once("resume", f"{told}; the monitor starts from nothing")


def output_embeddings_path(model: Any) -> str:
    """Attribute path of the layer that ``get_output_embeddings()`` returns.

    Raises:
        LayerError: the model has no output embeddings.
    """
    embeddings = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if isinstance(embeddings, nn.Module):
        for path, module in model.named_modules(remove_duplicate=False):
            if module is embeddings:
                return str(path)
    raise LayerError(
        f"{type(model).__name__} has no output embeddings; name the output layer: layer='...'"
    )


def token_names(tokenizer: Any, classes: int) -> list[str | None]:
    """Token of each class, or None where there is none.

    Ids of a tokenizer may have gaps, and a layer more rows than there are ids.

    Args:
        tokenizer: has ``get_vocab()``.
        classes: C.
    """
    names: list[str | None] = [None] * classes
    for token, index in tokenizer.get_vocab().items():
        if 0 <= index < classes:
            names[index] = str(token)
    return names


def masked_ids(model: Any) -> set[int]:
    """Ids of tokens that generation never lets win, whatever their logits."""
    masked: set[int] = set()
    for settings in (getattr(model, "generation_config", None), getattr(model, "config", None)):
        for words in getattr(settings, "bad_words_ids", None) or ():
            if len(words) == 1:
                masked.add(int(words[0]))
        masked.update(int(i) for i in getattr(settings, "suppress_tokens", None) or ())
    return {index for index in masked if index >= 0}


def _classes(model: Any, layer: Any) -> int | None:
    """C of the only layer, or None where there are several or it isn't found yet."""
    try:
        return find_layer(model, layer).classes
    except (UnargError, TypeError, AttributeError):
        return None


def _size(tokenizer: Any) -> int | None:
    """How many tokens there are, or None where that isn't known."""
    return len(tokenizer) if hasattr(tokenizer, "__len__") else None
