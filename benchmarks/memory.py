"""Peak memory of a check of a slice of a large layer's classes, as a ratio to the layer's own.

Usage: ``python -m benchmarks.memory [--classes 256000] [--dim 2048] [--slice 512]``

W is random and float32. All classes are rivals; of the slice each is decided and proven. The check
is made in a child process, whose largest resident size the kernel tells: W itself, Python and its
libraries are in it. At the default sizes W alone has 2 GB, and the check takes some minutes.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

_CHILD = "--child"


def peak() -> int:
    """Largest resident size of this process so far, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def check(classes: int, dim: int, count: int) -> None:
    """Check the first classes of a random layer, and print what it took as numbers in a line."""
    import torch

    from unarg_callback import Domain, OutputLayer, Status
    from unarg_callback.assembly import report_of
    from unarg_callback.geometry.checker import Checker
    from unarg_callback.search.limits import Limits
    from unarg_callback.search.stages import Stages
    from unarg_callback.verification import from_scratch

    imported = peak()
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(classes, dim, generator=generator)
    bias = torch.randn(classes, generator=generator)
    drawn, begin = peak(), time.perf_counter()
    with torch.no_grad():
        layer = OutputLayer(weight, bias)
        checker = Checker(layer, Domain.box(100.0))
        stages = Stages(checker, Limits(), mine=torch.arange(classes) < count)
        from_scratch(stages, None, "interior_point")
        report = report_of(stages, stages.evidence(), time.perf_counter() - begin)
    status = report.status[:count]
    undecided = int((status == Status.UNDECIDED).sum())
    lost = int((status == Status.UNARGMAXABLE).sum())
    print(imported, drawn, peak(), undecided, lost, f"{report.seconds:.1f}")


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--classes", type=int, default=256_000)
    parser.add_argument("--dim", type=int, default=2048)
    parser.add_argument("--slice", type=int, default=512, help="classes that are decided")
    parser.add_argument(_CHILD, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        check(options.classes, options.dim, options.slice)
        return
    sizes = [options.classes, options.dim, options.slice]
    command = [sys.executable, "-m", "benchmarks.memory", _CHILD]
    for name, size in zip(("--classes", "--dim", "--slice"), sizes, strict=True):
        command += [name, str(size)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"the check ended with status {done.returncode}: out of memory, if it is -9")
    *counts, seconds = done.stdout.split()
    imported, drawn, most, undecided, lost = map(int, counts)
    bytes_of_w = 4 * options.classes * options.dim
    print(
        f"{'C x d':>16}{'slice':>7}{'unargmaxable':>14}{'undecided':>11}{'check s':>9}"
        f"{'W MB':>8}{'libraries MB':>14}{'drawn MB':>10}{'peak MB':>9}{'peak / W':>10}"
    )
    print(
        f"{f'{options.classes} x {options.dim}':>16}{options.slice:>7}{lost:>14}{undecided:>11}"
        f"{seconds:>9}{bytes_of_w / 1e6:>8.0f}{imported / 1e6:>14.0f}{drawn / 1e6:>10.0f}"
        f"{most / 1e6:>9.0f}{most / bytes_of_w:>10.2f}"
    )
    from benchmarks.timing import ratio

    ratio("peak memory / W", most / bytes_of_w)


if __name__ == "__main__":
    main()
