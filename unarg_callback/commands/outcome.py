"""Save and print what a check found, each as soon as it is known."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from unarg_callback.commands.outputs import UsageError
from unarg_callback.commands.report_options import write_reports
from unarg_callback.commands.terminal import shows_progress, write

if TYPE_CHECKING:
    from unarg_callback.checkpoints import LocatedLayer
    from unarg_callback.class_filter import ClassFilter
    from unarg_callback.geometry.layer import OutputLayer
    from unarg_callback.report import Report
    from unarg_callback.reports.answers import Answers

TO_STDOUT = "-"


class Outcome:
    """What there is to tell of one check.

    Neither a file that can't be written, nor a full terminal, nor somebody who interrupts what is
    left to do costs the other its result.

    Args:
        report: of the check.
        layer: that was checked.
        located: the layer's file.
        options: of ``unarg check``.
        chosen: which classes to tell about; None for all.
    """

    def __init__(
        self,
        report: Report,
        layer: OutputLayer,
        located: LocatedLayer,
        options: argparse.Namespace,
        chosen: ClassFilter | None,
    ) -> None:
        from unarg_callback.reports.told import told

        self._report, self._layer, self._located = report, layer, located
        self._options, self._chosen = options, chosen
        self._listed = told(report, chosen)
        self._answers: Answers | None = None
        self._unwritten: list[str] = []
        self._failures: list[BaseException] = []

    def tell(self) -> None:
        """Save and print everything, then raise what went wrong first.

        Raises:
            UsageError: a file could not be written.
            OSError: standard output can't be written.
            KeyboardInterrupt: somebody interrupted; what was finished is saved.
        """
        further = self._options.top_k is not None or self._options.min_lead is not None
        self._try(self._save_proofs)
        if not further:
            self._try(self._save_json)
        self._try(self._print_table)
        if further:
            self._try(self._ask_further)
            self._try(self._save_json)
        self._try(self._save_reports)
        self._try(self._require_written)
        interrupts = [one for one in self._failures if isinstance(one, KeyboardInterrupt)]
        for failure in [*interrupts, *self._failures]:
            raise failure

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (Exception, KeyboardInterrupt) as cause:
            self._failures.append(cause)

    def _save_proofs(self) -> None:
        path = self._options.proofs
        if path is not None:
            try:
                self._report.save_proofs(path)
            except OSError as cause:
                self._unwritten.append(f"--proofs {path} ({cause.strerror or cause})")

    def _save_json(self) -> None:
        from unarg_callback.reports.told import told

        path = self._options.json
        if path is None:
            return
        whole = told(self._report, self._chosen, self._answers)
        try:
            if path == TO_STDOUT:
                write(sys.stdout, whole.to_json())
            else:
                whole.to_json(path)
        except OSError as cause:
            self._unwritten.append(f"--json {path} ({cause.strerror or cause})")

    def _save_reports(self) -> None:
        interrupted = any(isinstance(one, KeyboardInterrupt) for one in self._failures)
        self._unwritten += write_reports(
            self._report,
            self._layer,
            self._located,
            self._options,
            chosen=self._chosen,
            answers=self._answers,
            closely=not interrupted,
            progress=shows_progress(self._options),
        )

    def _require_written(self) -> None:
        if self._unwritten:
            raise UsageError(
                f"the check is done, but writing failed: {', '.join(self._unwritten)}; free space "
                "or choose another place, and run it again"
            )

    def _print_table(self) -> None:
        table = f"{self._located.describe()}\n{self._listed.table(self._options.limit)}"
        self._print(table)

    def _ask_further(self) -> None:
        for text in self._further():
            self._try(lambda text=text: self._print(f"\n{text}"))  # type: ignore[misc]

    def _further(self) -> Iterator[str]:
        """Find the answers, and give each in words."""
        from unarg_callback.margins import verify_margin
        from unarg_callback.reports.answers import Answers
        from unarg_callback.top_k import verify_top_k

        options, report, layer = self._options, self._report, self._layer
        limit, domain = options.limit, options.domain
        common = {"time_limit": options.time_limit, "progress": shows_progress(options)}
        self._answers = Answers()
        if options.top_k is not None:
            top = verify_top_k(layer, options.top_k, domain, report=report, **common)
            self._answers = replace(self._answers, top=top)
            yield replace(top, argmax=self._listed).table(limit)
        if options.min_lead is not None:
            margin = verify_margin(layer, options.min_lead, domain, report=report, **common)
            self._answers = replace(self._answers, margin=margin)
            yield replace(margin, argmax=self._listed).table(limit)

    def _print(self, text: str) -> None:
        # Standard output belongs to the JSON where it was asked for there.
        to_stdout = self._options.json != TO_STDOUT
        if not self._options.quiet:
            write(sys.stdout if to_stdout else sys.stderr, text)
