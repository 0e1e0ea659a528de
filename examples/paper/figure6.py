"""Figure 6: how many tokens of each model are unargmaxable.

    python examples/paper/figure6.py --out runs/paper/figure6.png [REPORT.json ...]

From reports of ``unarg check --json``; without any, the numbers of the paper's Table 5.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from unarg_callback.figures.bars import Bar, draw_bars, read_bars
from unarg_callback.figures.canvas import save

PRINTED = Path(__file__).with_name("table5.json")


def main() -> None:
    """Write the figure."""
    parser = argparse.ArgumentParser(description="Figure 6 of the paper.")
    parser.add_argument("reports", nargs="*", type=Path, metavar="REPORT.json")
    parser.add_argument("--out", type=Path, default=Path("runs/paper/figure6.png"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    print(save(draw_bars(read_bars(options.reports) or printed()), options.out))


def printed() -> list[Bar]:
    """The bars of the paper."""
    numbers = json.loads(PRINTED.read_text(encoding="utf-8"))["unargmaxable"]
    return [Bar(name, count) for name, count in numbers.items()]


if __name__ == "__main__":
    main()
