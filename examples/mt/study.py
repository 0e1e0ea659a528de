"""Train the translation model with each map as its attention, and write down what came of it."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from mt.attention_log import cross_attention, support
from mt.data import TranslationData
from mt.model import Translator
from mt.training import find_monitor, run, set_up


class StudyError(RuntimeError):
    """A training of the study failed its own check; the message tells where its output is."""


@dataclass(frozen=True)
class Grid:
    """A map, and the values of its parameter.

    Attributes:
        map: one of ``unarg_callback.heads.named_maps.MAP_NAMES``.
        lambda_: values for sparsegen.
        q: values for sparsecone and sparsehourglass.
    """

    map: str
    lambda_: list[float] = field(default_factory=list)
    q: list[float] = field(default_factory=list)

    @property
    def parameter(self) -> str:
        """The name of what varies; empty if nothing does."""
        return "lambda" if self.lambda_ else "q" if self.q else ""

    @property
    def values(self) -> list[float]:
        """The values of what varies; NaN if nothing does."""
        return self.lambda_ or self.q or [float("nan")]

    @property
    def labels(self) -> list[str]:
        """What the results are called, one a value."""
        return [_label(self.map, self.parameter, value) for value in self.values]


@dataclass(frozen=True)
class Result:
    """One trained model: a line of the CSV. Scores are the test set's, but for ``valid_loss``.

    Attributes:
        map: of the decoder's attention to the source.
        parameter: name of the map's parameter, or empty.
        value: of the parameter; NaN if there is none.
        seed: of the start, dropout and order.
        valid_loss: cross entropy a validation token, by which parameters are chosen.
        bleu: of greedy translations, 0 to 100.
        chrf: of greedy translations, 0 to 100.
        support: of each decoder layer, the mean number of source tokens with a weight above 0 over
            heads and target tokens, with the references as the decoder's input.
        length: the mean number of source tokens that there are.
        unargmaxable: target tokens that the trained model's output layer can't predict, proved.
        undecided: target tokens without a proof.
    """

    map: str
    parameter: str
    value: float
    seed: int
    valid_loss: float
    bleu: float
    chrf: float
    support: tuple[float, ...]
    length: float
    unargmaxable: int
    undecided: int

    @property
    def label(self) -> str:
        """The map and its parameter."""
        return _label(self.map, self.parameter, self.value)


def run_study(
    options: Sequence[str], attentions: Sequence[Grid], seeds: Sequence[int], workdir: Path
) -> Iterator[Result]:
    """Train and test a model for each value of each map and each seed.

    A model has a folder of its own, and one that an earlier call trained with the same arguments
    is taken from there.

    Args:
        options: arguments for ``train_mt.py`` that all trainings share.
        attentions: maps and their parameters.
        seeds: the study is run once for each.
        workdir: of the folders.

    Raises:
        CorpusError: there is no corpus to train on.
        StudyError: the monitor and the check of a saved model disagree.
    """
    for seed in seeds:
        for grid in attentions:
            for value in grid.values:
                yield _result(options, grid, value, seed, workdir)


def folder(workdir: Path, result: Result) -> Path:
    """Where a trained model is: its ``model.ckpt``, log and TensorBoard files."""
    return _folder(workdir, result.map, result.parameter, result.value, result.seed)


def _label(name: str, parameter: str, value: float) -> str:
    return f"{name}, {parameter} = {value:g}" if parameter else name


def _folder(workdir: Path, name: str, parameter: str, value: float, seed: int) -> Path:
    with_value = f"{name}_{parameter}_{value:g}" if parameter else name
    return workdir / f"{with_value}_seed_{seed}"


def _result(options: Sequence[str], grid: Grid, value: float, seed: int, workdir: Path) -> Result:
    place = _folder(workdir, grid.map, grid.parameter, value, seed)
    arguments = [*options, "--seed_everything", str(seed), "--model.attention", grid.map]
    if grid.parameter:
        arguments += [f"--model.attention_{grid.parameter}", f"{value!r}"]
    saved = place / "result.json"
    if saved.exists():
        found = json.loads(saved.read_text(encoding="utf-8"))
        if found["arguments"] == arguments:
            return Result(**{**found["result"], "support": tuple(found["result"]["support"])})
    result = _train(arguments, grid, value, seed, place)
    text = json.dumps({"arguments": arguments, "result": asdict(result)}, indent=1)
    saved.write_text(text + "\n", encoding="utf-8")
    return result


def _train(arguments: list[str], grid: Grid, value: float, seed: int, place: Path) -> Result:
    place.mkdir(parents=True, exist_ok=True)
    log = place / "log.txt"
    with log.open("w", encoding="utf-8") as file, redirect_stdout(file), quiet():
        cli = set_up([*arguments, "--workdir", str(place)])
        if run(cli) != 0:
            raise StudyError(f"the training in {place} didn't pass its check; see {log}")
        tested = dict(cli.trainer.callback_metrics)
        (valid,) = cli.trainer.validate(cli.model, datamodule=cli.datamodule, verbose=False)
    monitor = find_monitor(cli.trainer)
    counts = {} if monitor is None or monitor.last_report is None else monitor.last_report.counts
    nonzero, length = mean_support(cli.model.eval(), cli.datamodule)
    return Result(
        map=grid.map,
        parameter=grid.parameter,
        value=value,
        seed=seed,
        valid_loss=float(valid["valid/loss"]),
        bleu=float(tested["test/bleu"]),
        chrf=float(tested["test/chrf"]),
        support=nonzero,
        length=length,
        unargmaxable=counts.get("unargmaxable", 0),
        undecided=counts.get("undecided", 0),
    )


def mean_support(model: Translator, data: TranslationData) -> tuple[tuple[float, ...], float]:
    """Mean numbers in the test set: of each layer's attended source tokens, and of all of them."""
    pairs = [support(cross_attention(model, batch), batch) for batch in data.test_dataloader()]
    nonzero, lengths = (torch.cat(parts, -1) for parts in zip(*pairs, strict=True))
    return tuple(nonzero.mean(1).tolist()), float(lengths.mean())


@contextmanager
def quiet() -> Iterator[None]:
    """Without what Lightning says at the start of each of many trainings."""
    # Where both of its packages are installed, the last one imported speaks for both.
    packages = ("pytorch_lightning", "lightning_fabric", "lightning.pytorch", "lightning.fabric")
    logs = [logging.getLogger(name) for name in packages]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*does not have many workers.*")
            warnings.filterwarnings("ignore", message=".*LeafSpec.*")
            yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)
