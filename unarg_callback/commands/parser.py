"""How the command line is read: bad input is one line."""

from __future__ import annotations

import argparse
from typing import NoReturn

from unarg_callback.commands.terminal import one_line

_BAD_INPUT = 2


class Parser(argparse.ArgumentParser):
    """As that of the standard library, but for what it says of bad input."""

    def error(self, message: str) -> NoReturn:
        """One line, as for all bad input, in place of the whole usage."""
        self.exit(_BAD_INPUT, f"unarg: {one_line(message)} (see {self.prog} --help)\n")
