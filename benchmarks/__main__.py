"""Run all benchmarks, or those named, and print one table of their ratios at the end.

Usage: ``python -m benchmarks [cold_check warm_check ...]``

Each runs in a process of its own with its defaults, and prints what it prints alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import RATIOS, told

NAMES = (
    "cold_check",
    "paper_baseline",
    "warm_check",
    "drift",
    "early_warning",
    "overhead",
    "exact_ways",
    "divided",
    "activation_range",
    "sparse_maps",
    "sparse_losses",
    "label_sets",
    "frames",
    "memory",
)


def run(name: str, folder: Path) -> int:
    """Run one benchmark; what it tells of its ratios goes to a file in the folder."""
    print(f"== benchmarks/{name}.py", flush=True)
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    ended = subprocess.run(command, env=os.environ | {RATIOS: str(folder / name)}, check=False)
    print(flush=True)
    return ended.returncode


def main() -> None:
    """Run them one after the other; the status is 1 if any failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    names = parser.parse_args().names
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory() as folder:
        failed = [name for name in names if run(name, Path(folder))]
        lines = [(name, line) for name in names for line in told(Path(folder) / name)]
    print("== all ratios")
    print(f"{'benchmark':18}{'of':52}{'ratio':>12}")
    for name, (what, value) in lines:
        print(f"{name:18}{what:52}{value:>12,.4g}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
