"""``unarg rankings``: how many rankings of the classes a layer can produce."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from unarg_callback.commands.outputs import UsageError
from unarg_callback.commands.terminal import write

_DIGITS = 40
"""Longer numbers are rounded, unless all digits are asked for."""
_MOST_CLASSES, _MOST_WRITTEN = 500_000, 100_000
"""C: more take minutes, as C! alone has millions of digits; and more with all digits."""
_MOST_CELLS, _MOST_CELLS_WRITTEN = 250_000, 10_000
"""Of a table, and of one with all digits."""
_BY_SUMS, _BY_STEPS = 3e14, 5e11
"""What a third of a minute allows of d^4 log2(C)^2, and of C d^2 log2(C): the two ways to count."""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand to those of ``unarg``; its ``run`` takes the options and ranks."""
    parser = commands.add_parser(
        "rankings",
        help="count the rankings of C classes that d features allow",
        description="Count the rankings of C classes that a layer of d features can produce, for "
        "weights in general position, exactly.",
        allow_abbrev=False,
    )
    parser.add_argument("classes", metavar="C", type=int, help="number of classes")
    parser.add_argument("features", metavar="d", type=int, help="number of features")
    parser.add_argument(
        "--table",
        action="store_true",
        help="all numbers up to C and d (10 10: Tables 2 and 3 of the paper)",
    )
    parser.add_argument("--digits", action="store_true", help="all digits of long numbers")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, ranks: object = None) -> int:
    """Print what was asked for; the exit status is 0.

    Raises:
        UnargError: C or d isn't in range, or it would take too long.
    """
    _require_feasible(options)
    told = text(options.classes, options.features, table=options.table, digits=options.digits)
    write(sys.stdout, told)
    return 0


def _require_feasible(options: argparse.Namespace) -> None:
    """Refuse what takes longer than a minute or so, or more memory than there may be."""
    classes, features = options.classes, options.features
    cells, digits = classes * features, " with --digits" if options.digits else ""
    most_cells = _MOST_CELLS_WRITTEN if options.digits else _MOST_CELLS
    if options.table and cells > most_cells:
        raise UsageError(
            f"--table of {_short(classes)} x {_short(features)} has {_short(cells)} numbers; "
            f"expected C times d of at most {most_cells:,}{digits}"
        )
    most_classes = _MOST_WRITTEN if options.digits else _MOST_CLASSES
    if classes > most_classes:
        raise UsageError(
            f"C is {_short(classes)}; expected at most {most_classes:,}{digits}, as C! takes too "
            "long to count beyond"
        )
    if options.table or features >= classes - 1:  # Then all rankings are in reach.
        return
    exponent = math.log2(classes)
    most = int(max((_BY_SUMS / exponent**2) ** 0.25, (_BY_STEPS / classes / exponent) ** 0.5))
    if features > most:
        raise UsageError(
            f"d is {features:,}; expected at most {most:,} for {classes:,} classes, or "
            f"{classes - 1:,} and more, where all rankings are in reach: others take too long"
        )


def _short(number: int) -> str:
    return f"{number:,}" if abs(number) < 10**12 else written(number) if number > 0 else "negative"


def text(classes: int, features: int, *, table: bool = False, digits: bool = False) -> str:
    """What the command prints.

    Args:
        classes: C.
        features: d.
        table: all numbers up to these, without and with a bias.
        digits: don't round long numbers.

    >>> print(text(4, 2))
    4 classes, 2 features: feasible rankings
    Wx            12  50%
    Wx + b        18  75%
    of            24
    """
    # NumPy, which it loads, would make every other command start later.
    from unarg_callback.rankings.counts import feasible_rankings

    if table:
        return "\n\n".join(_table(classes, features, bias, digits) for bias in (False, True))
    rows = [
        (name, feasible_rankings(classes, features, bias=bias))
        for name, bias in (("Wx", False), ("Wx + b", True))
    ]
    whole = math.factorial(classes)
    lines = [f"{classes:,} classes, {features:,} features: feasible rankings"]
    shown = [(name, written(count, digits), _share(count, whole)) for name, count in rows]
    shown.append(("of", written(whole, digits), ""))
    width = max(8, *(len(count) for _, count, _ in shown))
    lines += [f"{name:<6}  {count:>{width}}  {share}".rstrip() for name, count, share in shown]
    return "\n".join(lines)


def written(number: int, digits: bool = False) -> str:
    """A whole number with all digits, or rounded if they are many and not asked for.

    >>> written(10**50 * 7), written(3628800)
    ('7.000e50', '3,628,800')
    """
    exponent = _exponent(number)
    if exponent >= _DIGITS and not digits:
        # From the leading digits alone: Python refuses to write out very long integers.
        leading = round(number // 10 ** (exponent - 6) / 10**3)
        if leading == 10**4:
            leading, exponent = 10**3, exponent + 1
        return f"{leading / 1000:.3f}e{exponent}"
    return _all_digits(number)


def _exponent(number: int) -> int:
    guess = max(int(math.log10(number)) - 1, 0) if number else 0
    while 10 ** (guess + 1) <= number:
        guess += 1
    return guess


def _all_digits(number: int) -> str:
    """With separators, in pieces that no limit on the conversion of integers applies to."""
    pieces = []
    base = 10**3000
    while number >= base:
        number, low = divmod(number, base)
        pieces.append(f"{low:03000d}")
    text = str(number) + "".join(reversed(pieces))
    head = len(text) % 3
    parts = ([text[:head]] if head else []) + [text[i : i + 3] for i in range(head, len(text), 3)]
    return ",".join(parts)


def _share(count: int, whole: int) -> str:
    if count * 1000 >= whole:
        return f"{100 * count / whole:.3g}%"
    return f"1 in {written(whole // count) if count else 'none'}" if count else "none"


def _table(classes: int, features: int, bias: bool, digits: bool) -> str:
    from unarg_callback.rankings.counts import table_of_rankings

    numbers = table_of_rankings(classes, features, bias=bias)
    rows = [["C \\ d", *(str(d) for d in range(1, features + 1))]]
    rows += [
        [str(c), *(written(n, digits).replace(",", "") for n in row)]
        for c, row in enumerate(numbers, start=2)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    title = f"Feasible rankings of {'Wx + b' if bias else 'Wx'}"
    lines = ["  ".join(f"{cell:>{w}}" for cell, w in zip(r, widths, strict=True)) for r in rows]
    return "\n".join([title, *lines])
