"""Figure 10: how many of 10,000 classes of random layers are unargmaxable, for d from 2 to 50.

    python examples/paper/figure10.py --csv runs/paper/figure10.csv --out runs/paper/figure10.png

Interrupted, it goes on where it stopped. ``--bias`` measures layers with a bias too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from unarg_callback.figures.canvas import save
from unarg_callback.figures.random_layers import draw, measure_all


def main() -> int:
    """Measure, draw, and say whether the paper's statement holds; 0 if it does."""
    parser = argparse.ArgumentParser(description="Figure 10 of the paper.")
    parser.add_argument("--classes", type=int, default=10_000)
    parser.add_argument("--least", type=int, default=2, help="lowest d")
    parser.add_argument("--most", type=int, default=50, help="highest d")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bias", action="store_true", help="layers with a bias too")
    parser.add_argument("--csv", type=Path, default=Path("runs/paper/figure10.csv"))
    parser.add_argument("--out", type=Path, default=Path("runs/paper/figure10.png"))
    options = parser.parse_args()
    for path in (options.csv, options.out):
        path.parent.mkdir(parents=True, exist_ok=True)
    # The widest first: they are quick, and the statement is about them.
    widths = range(options.most, options.least - 1, -1)
    found = []
    for bias in (False, True) if options.bias else (False,):
        found += measure_all(options.csv, options.classes, widths, options.seed, bias=bias)
    print(f"wrote {save(draw(found), options.out)}")
    wide = [m for m in found if m.features >= 30]
    lost = sum(m.unargmaxable + m.undecided for m in wide)
    if not wide:
        print("No layer has d >= 30, of which the paper speaks.")
        return 0
    print(
        f"{sum(m.seconds for m in found):.0f} s of checks. From d = 30 on, {lost} classes of "
        f"{sum(m.classes for m in wide):,} are unargmaxable or undecided."
    )
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
