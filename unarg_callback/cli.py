"""The ``unarg`` command: check the output layer in a file, from a terminal or a script.

Exit status: 0 when the check ran, 1 when ``--fail-on`` hit, 2 for bad input (with one line on
stderr that says what was wrong and what to do), 130 when interrupted.

Processes started by ``torchrun`` divide the check among them: each reads the file, the first prints
and writes, and all end with the same status.
"""

from __future__ import annotations

# What takes time to import is imported in main, where an interrupt is no traceback.
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from types import FrameType

    from unarg_callback.distributed.ranks import Ranks

_BAD_INPUT, _INTERRUPTED = 2, 130
_DESCRIPTION = """\
Find, and prove, the classes that an output layer can never predict: with more classes than
features, no input at all may make them the argmax of Wx + b."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: the arguments; those of the process if None.

    Returns:
        The exit status.
    """
    noticed: list[int] = []
    try:
        return _noticing(noticed, lambda: _main(argv, noticed))
    except KeyboardInterrupt:
        pass
    except Exception as cause:
        # An import that is interrupted may end in an error of its own, then or later.
        if not (noticed or _is_of_interrupt(cause)):
            raise
    if sys.stderr is not None:
        print("unarg: interrupted", file=sys.stderr)
    return _INTERRUPTED


def _noticing(noticed: list[int], run: Callable[[], int]) -> int:
    """What is run gives; interrupts are raised as usual, and noted, as imports may swallow them."""
    import signal
    import threading

    usual = signal.default_int_handler
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not usual
    ):
        return run()

    def notice(number: int, frame: FrameType | None) -> None:
        noticed.append(number)
        usual(number, frame)

    signal.signal(signal.SIGINT, notice)
    try:
        return run()
    finally:
        signal.signal(signal.SIGINT, usual)


def _main(argv: Sequence[str] | None, noticed: Sequence[int]) -> int:
    import contextlib

    from unarg_callback.commands.terminal import give_bars_a_size

    if "torch" not in sys.modules:
        # Threads that spin for long while they wait make a check many times slower on a busy
        # machine; threads that never do make it slower on an idle one.
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    give_bars_a_size()
    if not _by_torchrun():
        return _status(lambda: _run(argv, None), noticed)
    from unarg_callback.distributed.ranks import from_environment

    ranks = from_environment()
    with contextlib.ExitStack() as stack:
        if not ranks.first:  # What there is to say, the first process says.
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        status = _status(lambda: _run(argv, ranks), noticed)
        # torchrun ends the others as soon as one has failed: the first has to have said why.
        ranks.gather(status)
    ranks.close()
    return status


def _run(argv: Sequence[str] | None, ranks: Ranks | None) -> int:
    options = _parser().parse_args(argv)
    return int(options.run(options, ranks))


def _status(run: Callable[[], int], noticed: Sequence[int]) -> int:
    """The exit status of what is run; what goes wrong is told in one line."""
    from unarg_callback.commands.terminal import one_line, write
    from unarg_callback.errors import UnargError

    try:
        return run()
    except UnargError as problem:
        if noticed:  # Such as a package that is missing, as its import was interrupted.
            raise KeyboardInterrupt from problem
        write(sys.stderr, f"unarg: {one_line(str(problem))}")
        return _BAD_INPUT
    except OSError as cause:
        write(sys.stderr, f"unarg: can't print ({cause.strerror or cause}); free space, or --quiet")
        return _BAD_INPUT
    except MemoryError:
        write(sys.stderr, "unarg: too little memory for this layer; check it on a larger machine")
        return _BAD_INPUT
    except KeyboardInterrupt:
        write(sys.stderr, "unarg: interrupted")
        return _INTERRUPTED
    except SystemExit as stop:  # How argparse ends after --help or a usage error.
        return stop.code if isinstance(stop.code, int) else _BAD_INPUT


def _is_of_interrupt(cause: BaseException | None) -> bool:
    """Whether an exception was raised while, or because, an interrupt was being handled."""
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _parser() -> argparse.ArgumentParser:
    from unarg_callback.commands import check, compare, figure, rankings, recheck, summary
    from unarg_callback.commands.parser import Parser

    parser = Parser(prog="unarg", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"unarg {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (check, compare, summary, recheck, figure, rankings):
        command.add(commands)
    return parser


def _by_torchrun() -> bool:
    """Whether torchrun started this with others; told without torch, which is slow to load."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "TORCHELASTIC_RUN_ID" in os.environ


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("unarg-callback")
    except PackageNotFoundError:
        return "(not installed)"
