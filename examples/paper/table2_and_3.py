"""Tables 2 and 3: how many rankings of |C| classes a layer of d features can produce.

    python examples/paper/table2_and_3.py [|C| d]

Without arguments the sizes are the paper's, 10 and 10. ``unarg rankings`` does the same.
"""

from __future__ import annotations

import sys

from unarg_callback.commands.rankings import text

if __name__ == "__main__":
    classes, features = map(int, sys.argv[1:3] or (10, 10))
    print(text(classes, features, table=True))
