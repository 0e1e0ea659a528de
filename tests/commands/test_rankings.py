"""``unarg rankings`` prints the numbers that the package counts."""

from __future__ import annotations

import argparse
import math

import pytest

from tests.rankings.test_counts import TABLE_2, TABLE_3
from unarg_callback.commands import rankings
from unarg_callback.errors import UnargError
from unarg_callback.rankings import feasible_rankings


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    rankings.add(parser.add_subparsers())
    options = parser.parse_args(["rankings", *arguments])
    return int(options.run(options, None))


def test_one_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("4", "2") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed == "4 classes, 2 features: feasible rankings Wx 12 50% Wx + b 18 75% of 24"


def test_the_tables_of_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("10", "10", "--table") == 0
    without, with_bias = capsys.readouterr().out.split("\n\n")
    for printed, expected in ((without, TABLE_2), (with_bias, TABLE_3)):
        rows = [line.split() for line in printed.splitlines()[2:]]
        assert [row[1:] for row in rows] == [line.split() for line in expected.strip().split("\n")]
        assert [row[0] for row in rows] == [str(c) for c in range(2, 11)]


def test_long_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    run("2000", "16")
    short = capsys.readouterr().out
    assert f"e{math.floor(math.lgamma(2001) / math.log(10))}" in short
    assert "1 in " in short
    run("2000", "16", "--digits")
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("of "))
    digits = line.split()[1].replace(",", "")
    assert len(digits) == 5736
    # More digits than Python converts at once; so in pieces.
    value = 0
    for at in range(0, len(digits), 1000):
        piece = digits[at : at + 1000]
        value = value * 10 ** len(piece) + int(piece)
    assert value == math.factorial(2000)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (1000, "1,000"),
        (10**40 - 1, ",".join(["9", *["999"] * 13])),
        (10**40, "1.000e40"),
        (99_999 * 10**40, "1.000e45"),
        (1_2344 * 10**40, "1.234e44"),
    ],
)
def test_how_numbers_are_written(number: int, text: str) -> None:
    assert rankings.written(number) == text


def test_shares_that_are_tiny(capsys: pytest.CaptureFixture[str]) -> None:
    run("12", "1")
    assert f"1 in {math.factorial(12) // 2:,}" in capsys.readouterr().out
    run("3", "0")
    assert "Wx             0  none" in capsys.readouterr().out


def test_sizes_out_of_range_are_refused() -> None:
    with pytest.raises(UnargError, match="classes is 0"):
        run("0", "3")
    assert feasible_rankings(1, 1) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["99999999999999999999", "3"], "at most 500,000"),
        (["100000000", "2"], "at most 500,000"),
        (["200000", "2", "--digits"], "at most 100,000 with --digits"),
        (["9" * 60, "3"], "C is 1.000e60"),
        (["1000", "1000", "--table"], "has 1,000,000 numbers; expected C times d of at most"),
        (["200", "200", "--table", "--digits"], "at most 10,000 with --digits"),
        (["30000", "20000"], "29,999 and more"),
    ],
)
def test_what_would_take_for_ever_is_refused(arguments: list[str], expected: str) -> None:
    with pytest.raises(UnargError, match=expected):
        run(*arguments)


def test_features_enough_for_all_rankings_are_few_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("2000", "99999999999999999999") == 0
    assert "100%" in capsys.readouterr().out
    assert run("5000", "100") == 0
