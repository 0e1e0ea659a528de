"""The ``unarg`` command: check the output layer in a file, from a terminal or a script.

Exit status: 0 when the check ran, 1 when ``--fail-on`` hit, 2 for bad input (with one line on
stderr that says what was wrong and what to do), 130 when interrupted.

Processes started by ``torchrun`` divide the check among them: each reads the file, the first prints
and writes, and all end with the same status.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from unarg_callback.errors import UnargError

if TYPE_CHECKING:
    from unarg_callback.checkpoints import LocatedLayer
    from unarg_callback.distributed.ranks import Ranks
    from unarg_callback.geometry.layer import OutputLayer
    from unarg_callback.report import Report

_RAN, _FOUND, _BAD_INPUT, _INTERRUPTED = 0, 1, 2, 130
_TO_STDOUT = "-"
_DESCRIPTION = """\
Find, and prove, the classes that an output layer can never predict: with more classes than
features, no input at all may make them the argmax of Wx + b."""


class _UsageError(UnargError):
    """Bad input that only the command line has."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, as for all bad input, in place of the whole usage."""
        self.exit(_BAD_INPUT, f"unarg: {_one_line(message)} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: the arguments; those of the process if None.

    Returns:
        The exit status.
    """
    if "torch" not in sys.modules:
        # Threads that spin for long while they wait make a check many times slower on a busy
        # machine; threads that never do make it slower on an idle one.
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if not _by_torchrun():
        return _status(lambda: _run(argv, None))
    from unarg_callback.distributed.ranks import from_environment

    ranks = from_environment()
    with contextlib.ExitStack() as stack:
        if not ranks.first:  # What there is to say, the first process says.
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        status = _status(lambda: _run(argv, ranks))
        # torchrun ends the others as soon as one has failed: the first has to have said why.
        ranks.gather(status)
    ranks.close()
    return status


def _run(argv: Sequence[str] | None, ranks: Ranks | None) -> int:
    options = _parser().parse_args(argv)
    return int(options.run(options, ranks))


def _status(run: Callable[[], int]) -> int:
    """The exit status of what is run; what goes wrong is told in one line."""
    try:
        return run()
    except UnargError as problem:
        _write(sys.stderr, f"unarg: {_one_line(str(problem))}")
        return _BAD_INPUT
    except OSError as cause:
        _write(
            sys.stderr, f"unarg: can't print ({cause.strerror or cause}); free space, or --quiet"
        )
        return _BAD_INPUT
    except MemoryError:
        _write(sys.stderr, "unarg: too little memory for this layer; check it on a larger machine")
        return _BAD_INPUT
    except KeyboardInterrupt:
        _write(sys.stderr, "unarg: interrupted")
        return _INTERRUPTED
    except SystemExit as stop:  # How argparse ends after --help or a usage error.
        return stop.code if isinstance(stop.code, int) else _BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="unarg", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"unarg {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    check = commands.add_parser(
        "check",
        help="check the output layer in a file",
        description="Check the output layer in a file and prove a verdict for each class.",
        allow_abbrev=False,
        epilog="Exit status: 0 the check ran, 1 --fail-on hit, 2 bad input.",
    )
    _add_layer_options(check)
    _add_check_options(check)
    check.set_defaults(run=_check)
    return parser


def _add_layer_options(check: argparse.ArgumentParser) -> None:
    group = check.add_argument_group("which layer")
    group.add_argument(
        "file",
        metavar="FILE",
        help=".npz (also of Marian and Nematus), .pt, .pth, .bin or .ckpt (PyTorch, Lightning, "
        "fairseq, OpenNMT-py), .safetensors, .onnx, the .index.json of shards, or the folder of a "
        "transformers model; no pickle is ever executed",
    )
    group.add_argument("--weight", metavar="NAME", help="the weight, if more than one could be")
    group.add_argument("--bias", metavar="NAME", help='the bias, or "none" (default: by the name)')
    group.add_argument(
        "--orientation",
        choices=["classes-first", "features-first"],
        help="which dimension of the weight counts the classes, if the bias's length can't tell",
    )
    group.add_argument(
        "--labels",
        metavar="FILE",
        help="class names: .json (also a vocab.json or tokenizer.json), .txt, .vocab, a "
        "SentencePiece .model or a Marian .yml (default: those that the model's own files have)",
    )
    group.add_argument(
        "--exclude",
        metavar="IDS",
        type=_id_ranges,
        help='classes that take no part, such as padding: 0,5,10-20, or "none" (default: those '
        "that the model's own files rule out)",
    )


def _add_check_options(check: argparse.ArgumentParser) -> None:
    group = check.add_argument_group("how to check")
    group.add_argument(
        "--domain",
        default="box:100",
        metavar="X",
        help="where inputs lie: box:R, box:LO,HI, nonnegative:HI or free (default: %(default)s)",
    )
    group.add_argument("--patience", type=_count, metavar="N", help="most reflections a class")
    group.add_argument(
        "--time-limit",
        type=_seconds,
        metavar="S",
        help="seconds; classes not settled by then stay undecided",
    )
    group.add_argument("--device", metavar="NAME", help="torch device of the search, such as cuda")
    group = check.add_argument_group("what to report")
    group.add_argument(
        "--fail-on",
        action="append",
        choices=["unargmaxable", "undecided"],
        default=[],
        help="exit with 1 if there is such a class (may be given twice)",
    )
    group.add_argument("--json", metavar="OUT", help="write the report as JSON (-: to stdout)")
    group.add_argument("--proofs", metavar="OUT", help="write every proof to an .npz")
    group.add_argument(
        "--limit", type=_count, default=20, metavar="N", help="rows of the table (default: 20)"
    )
    group.add_argument("--quiet", action="store_true", help="no table and no progress")


def _check(options: argparse.Namespace, ranks: Ranks | None) -> int:
    """Everything that can be wrong with the input is found before the check starts."""
    if ranks is None:
        _require_outputs(options)  # Before torch is loaded, which takes a while.
    from unarg_callback.distributed.ranks import Ranks
    from unarg_callback.verification import verify

    together = ranks or Ranks()
    located, layer = together.together(lambda: _prepare(options, together))
    report = verify(
        layer,
        options.domain,
        patience=options.patience,
        time_limit=options.time_limit,
        progress=not options.quiet and sys.stderr.isatty(),
        ranks=together,
    )
    together.together(lambda: _tell(report, located, options) if together.first else None)
    hit = any(report.counts[kind] for kind in options.fail_on)
    return _FOUND if hit else _RAN


def _prepare(options: argparse.Namespace, ranks: Ranks) -> tuple[LocatedLayer, OutputLayer]:
    if ranks.first and not ranks.alone:
        _require_outputs(options)
    from unarg_callback.checkpoints import locate_layer
    from unarg_callback.devices import usable_device
    from unarg_callback.geometry.domain import Domain

    Domain.parse(options.domain)
    device = options.device and usable_device(options.device, "--device")
    located = locate_layer(options.file, options.weight, options.bias, options.orientation)
    located = _with_options(located, options)
    layer = located.load()
    return located, layer if device is None else layer.to(device)


def _tell(report: Report, located: LocatedLayer, options: argparse.Namespace) -> None:
    # Neither a file that can't be written nor a full terminal costs the other its result.
    try:
        _save(report, options)
    finally:
        if not options.quiet:
            # Standard output belongs to the JSON where it was asked for there.
            stream = sys.stderr if options.json == _TO_STDOUT else sys.stdout
            _write(stream, f"{located.describe()}\n{report.table(options.limit)}")


def _by_torchrun() -> bool:
    """Whether torchrun started this with others; told without torch, which is slow to load."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "TORCHELASTIC_RUN_ID" in os.environ


def _with_options(located: LocatedLayer, options: argparse.Namespace) -> LocatedLayer:
    """The layer with the names and excluded classes of the command line, where it has any."""
    from unarg_callback.checkpoints import read_labels

    classes = located.classes
    if options.labels is not None:
        located = located.with_names(read_labels(options.labels, classes))
    if options.exclude is None:
        return located
    outside = [span for span in options.exclude if span.stop > classes]
    if outside:
        raise _UsageError(
            f"--exclude has id {outside[0].stop - 1}, but the layer has {classes} classes; "
            f"expected ids from 0 to {classes - 1}"
        )
    return located.with_excluded(index for span in options.exclude for index in span)


def _require_outputs(options: argparse.Namespace) -> None:
    """Refuse outputs that could not be written, before any work is done for them."""
    targets: dict[str, Path] = {}
    if options.json is not None and options.json != _TO_STDOUT:
        targets["--json"] = Path(options.json)
    if options.proofs is not None:
        named = Path(options.proofs)
        targets["--proofs"] = (
            named
            if named.suffix == ".npz" or not named.name
            else named.with_name(named.name + ".npz")
        )
    for option, target in targets.items():
        _require_writable(option, target)
        for source in (options.file, options.labels):
            if source is not None and _same_file(target, Path(source)):
                raise _UsageError(
                    f"{option} {target} would overwrite the input; choose another name"
                )
    if len(targets) == 2 and _same_file(*targets.values()):
        raise _UsageError("--json and --proofs name the same file; choose two names")


def _require_writable(option: str, target: Path) -> None:
    try:
        if target.is_dir() or not target.name:
            raise _UsageError(f"{option} {target} is a folder; expected the name of a file")
        if target.exists() and not target.is_file():
            raise _UsageError(f"{option} {target} is not a regular file; expected one, or --json -")
        if target.exists():
            with target.open("ab"):
                pass
        else:
            with tempfile.TemporaryFile(dir=target.parent):
                pass
    except OSError as cause:
        raise _UsageError(
            f"{option} {target} can't be written ({cause.strerror or cause}); expected a file in "
            "a folder that exists and is writable"
        ) from cause


def _same_file(one: Path, other: Path) -> bool:
    """Whether two names lead to one file, by links of either kind too."""
    try:
        return os.path.samefile(one, other)
    except OSError:  # One of them does not exist yet.
        return os.path.realpath(one) == os.path.realpath(other)


def _save(report: Report, options: argparse.Namespace) -> None:
    problems = []
    try:
        if options.json == _TO_STDOUT:
            _write(sys.stdout, report.to_json())
        elif options.json is not None:
            report.to_json(options.json)
    except OSError as cause:
        problems.append(f"--json {options.json} ({cause.strerror or cause})")
    try:
        if options.proofs is not None:
            report.save_proofs(options.proofs)
    except OSError as cause:
        problems.append(f"--proofs {options.proofs} ({cause.strerror or cause})")
    if problems:
        raise _UsageError(
            f"the check is done, but writing failed: {', '.join(problems)}; free space or choose "
            "another place, and run it again"
        )


def _write(stream: TextIO | None, text: str) -> None:
    """Print; what the stream's encoding lacks is escaped, and a reader that left is no error."""
    if stream is None:  # Closed before the program started.
        return
    encoding = stream.encoding or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)
    except BrokenPipeError:
        _discard(stream)
    except OSError:
        _discard(stream)
        if stream is not sys.stderr:
            raise


def _discard(stream: TextIO) -> None:
    """Let whatever else is written, also when Python exits, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _id_ranges(text: str) -> list[range]:
    """``0,5,10-20`` as ranges, which take no memory however long they are; ``none`` as none."""
    if text == "none":
        return []
    spans = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not _is_id(first) or (dash and not _is_id(last)):
            raise argparse.ArgumentTypeError(f"{part.strip()!r} is no id; expected 0,5,10-20")
        span = range(int(first), int(last or first) + 1)
        if not span:
            raise argparse.ArgumentTypeError(f"{part.strip()!r} ends before it starts")
        spans.append(span)
    return spans


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _count(text: str) -> int:
    if not _is_id(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number of seconds from 0")
    return seconds


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("unarg-callback")
    except PackageNotFoundError:
        return "(not installed)"
