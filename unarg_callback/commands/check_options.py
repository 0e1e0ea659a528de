"""Options that say how to check, for every subcommand that checks a layer."""

from __future__ import annotations

import argparse
from typing import Any

from unarg_callback.commands.layer_options import count
from unarg_callback.commands.values import seconds


def add_check_options(parser: argparse.ArgumentParser) -> None:
    """Add the domain, limits and the device.

    Args:
        parser: of the subcommand.
    """
    group = parser.add_argument_group("how to check")
    group.add_argument(
        "--domain",
        default="box:100",
        metavar="X",
        help="where inputs lie: box:R, box:LO,HI, nonnegative:HI or free (default: %(default)s)",
    )
    group.add_argument("--patience", type=count, metavar="N", help="most reflections a class")
    group.add_argument(
        "--time-limit",
        type=seconds,
        metavar="S",
        help="seconds; classes not settled by then stay undecided",
    )
    group.add_argument("--device", metavar="NAME", help="torch device of the search, such as cuda")


def require_usable(options: argparse.Namespace) -> dict[str, Any]:
    """The device that the options mean, or None, once all of them have been found good.

    Raises:
        UnargError: the domain can't be read, or there is no such device.
    """
    from unarg_callback.devices import usable_device
    from unarg_callback.geometry.domain import Domain

    Domain.parse(options.domain)
    device = None if options.device is None else usable_device(options.device, "--device")
    return {"patience": options.patience, "device": device}
