"""Run the command with arguments of any kind."""

from __future__ import annotations

from unarg_callback.cli import main


def unarg(*arguments: object) -> int:
    """The exit status; what is printed is pytest's to capture."""
    return main([str(argument) for argument in arguments])
