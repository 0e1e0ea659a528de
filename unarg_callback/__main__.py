"""``python -m unarg_callback``: the same as the ``unarg`` command."""

import sys

from unarg_callback.cli import main

if __name__ == "__main__":
    sys.exit(main())
