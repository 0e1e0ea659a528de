"""Figures 11 and 12: steps of the search against frequency rank, for the layer in any file.

    python examples/paper/figures_11_12.py LAYER --out runs/paper/figure11.png [--patience 2500]

``unarg figure steps LAYER --out ...`` does the same, with all options of finding a layer. With
``--patience`` the paper's own search is drawn, else the search of this package. The vocabulary must
be in the order of frequency, as those of SentencePiece are.
"""

from __future__ import annotations

import sys

from unarg_callback.commands.figure import main

if __name__ == "__main__":
    sys.exit(main(["steps", *sys.argv[1:]]))
