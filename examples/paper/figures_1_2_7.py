"""Figures 1, 2 and 7: a class that can't win, the hull that it is in, and the rankings there are.

    python examples/paper/figures_1_2_7.py --out runs/paper

``unarg figure regions | hull | rankings FILE`` draws them for any layer of two features.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from unarg_callback.figures.canvas import save
from unarg_callback.figures.plane import draw_braid, draw_hull, draw_regions

WEIGHT = np.array([[1.0, 0.15], [-0.65, 0.9], [-0.5, -1.0], [0.05, 0.1]])
"""The row of the fourth class lies inside the triangle of the others: no input makes it win."""
BIAS = np.array([0.1, -0.25, 0.2, 0.75])
"""With it the fourth class wins, in a bounded region."""


def main() -> None:
    """Write the three figures."""
    parser = argparse.ArgumentParser(description="Figures 1, 2 and 7 of the paper.")
    parser.add_argument("--out", type=Path, default=Path("runs/paper"), help="a folder")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    print(save(draw_regions(WEIGHT), folder / "figure1.png"))
    print(save(draw_hull(WEIGHT), folder / "figure2.png"))
    print(save(draw_braid(WEIGHT, BIAS), folder / "figure7.png"))


if __name__ == "__main__":
    main()
