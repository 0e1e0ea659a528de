"""Train with the monitor on, then check the saved file again."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

from mt.data import TranslationData
from mt.model import Translator
from unarg_callback import Report, Status
from unarg_callback.callback import UnargmaxabilityMonitor
from unarg_callback.cli import main as unarg

VERDICTS = ("argmaxable", "unargmaxable", "undecided", "excluded")


class TranslationCLI(LightningCLI):
    """Lightning's command line, with the two arguments that people want first at the top level."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add ``--corpus`` and ``--workdir``, and give the model the sizes of the vocabularies."""
        parser.add_argument("--corpus", type=str | None, default=None, help="source TAB target")
        parser.add_argument("--workdir", type=str, default="runs/mt_small", help="all output")
        parser.link_arguments("corpus", "data.corpus")
        parser.link_arguments("workdir", "data.workdir")
        parser.link_arguments("workdir", "trainer.default_root_dir")
        for side in ("source_size", "target_size"):
            parser.link_arguments(f"data.{side}", f"model.{side}", apply_on="instantiate")


def set_up(argv: Sequence[str] | None = None) -> TranslationCLI:
    """Make the model, the data and the trainer that the arguments describe.

    Args:
        argv: the arguments; those of the process if None.

    Raises:
        CorpusError: there is no corpus to train on.
    """
    with warnings.catch_warnings():
        # Lightning calls parts of jsonargparse that will be renamed: no news to a user.
        warnings.filterwarnings("ignore", module=r"pytorch_lightning\.cli")
        return TranslationCLI(
            Translator, TranslationData, run=False, args=None if argv is None else list(argv)
        )


def run(cli: LightningCLI) -> int:
    """Train, test, save and compare what the command line has set up; return the exit status."""
    trainer, model, data = cli.trainer, cli.model, cli.datamodule
    monitor = find_monitor(trainer)
    if monitor is not None:
        monitor.labels = str(data.labels_file)
    checkpoint = data.workdir / "model.ckpt"
    with warnings.catch_warnings():
        # On a corpus of this size, worker processes would cost more than they load.
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        trainer.fit(model, datamodule=data)
        trainer.save_checkpoint(checkpoint)
        for scores in trainer.test(model, datamodule=data, verbose=False)[:1]:
            print(f"\nTest set: BLEU {scores['test/bleu']:.1f}, chrF {scores['test/chrf']:.1f}")
    for name, seen in ({} if monitor is None else monitor.activation_ranges).items():
        print(f"\nInputs of {name} in training (Table 9 of the paper):\n{seen.table9('mt_small')}")
    if monitor is None:
        print("No monitor in the configuration, so there is nothing to compare.")
        return 0
    if monitor.last_report is None:
        print("The monitor has no report of the final layer, so there is nothing to compare.")
        return 1
    return compare(monitor.last_report, check_file(checkpoint, data.labels_file, monitor))


def find_monitor(trainer: Trainer) -> UnargmaxabilityMonitor | None:
    """Return the monitor among the trainer's callbacks, if the configuration has one."""
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    return next((c for c in callbacks if isinstance(c, UnargmaxabilityMonitor)), None)


def check_file(checkpoint: Path, labels: Path, monitor: UnargmaxabilityMonitor) -> dict[str, Any]:
    """Run ``unarg check`` on the saved model and return its JSON report.

    Raises:
        RuntimeError: the check couldn't run; it has said why.
    """
    assert monitor.last_report is not None
    out = checkpoint.with_suffix(".unarg.json")
    excluded = ",".join(str(i) for i in monitor.last_report.ids(Status.EXCLUDED))
    arguments = ["check", str(checkpoint), "--weight", "generator.weight"]
    arguments += ["--bias", "generator.bias", "--labels", str(labels), "--limit", "10"]
    arguments += ["--domain", str(monitor.last_report.domain), "--json", str(out)]
    if excluded:
        arguments += ["--exclude", excluded]
    print(f"\n$ unarg {' '.join(arguments)}")
    if unarg(arguments) != 0:
        raise RuntimeError(f"the check of {checkpoint} failed")
    report: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return report


def compare(monitored: Report, checked: dict[str, Any]) -> int:
    """Print the monitor's last report beside that of the file; 0 if the verdicts are the same."""
    print(f"\n{'target tokens':<16}{'monitor':>10}{'saved file':>14}")
    for kind in VERDICTS:
        print(f"{kind:<16}{monitored.counts[kind]:>10,}{checked['counts'][kind]:>14,}")
    same_counts = all(monitored.counts[kind] == checked["counts"][kind] for kind in VERDICTS)
    ids = {entry["class"] for entry in checked["unargmaxable"]}
    if same_counts and ids == set(monitored.ids(Status.UNARGMAXABLE).tolist()):
        print("The two agree, on every token.")
        return 0
    print("The two DISAGREE.")
    return 1
