"""The hinge losses beside the sums over pairs that define them, forward and backward.

Usage: ``OMP_NUM_THREADS=1 python -m benchmarks.sparse_losses [--runs 5] [--clock cpu]``

Both run by turns in one process; each line has medians, their ratio, and the bytes that the largest
tensors of each need.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.sparse_timing import clock, in_turn
from benchmarks.timing import ratio
from unarg_callback.losses import sparsegen_hinge_loss, sparsehourglass_hinge_loss

SHAPES = ((256, 50), (256, 200), (64, 500))
_LABELS = 5


def pair_sum(s: Tensor, labels: Tensor, margin: Tensor) -> Tensor:
    """Eq. 6 and 7 as printed, with B x K x K differences; ``margin`` broadcasts to B x K."""
    difference = s[:, :, None] - s[:, None, :]
    both = labels[:, :, None] & labels[:, None, :]
    one = labels[:, :, None] & ~labels[:, None, :]
    hinge = (margin[:, :, None] - difference).clamp_min(0)
    return (difference.abs() * both + hinge * one).sum((1, 2)).mean()


def printed_gen(z: Tensor, labels: Tensor) -> Tensor:
    """Eq. 7 for lambda = 0."""
    return pair_sum(z, labels, labels / labels.sum(1, keepdim=True))


def printed_hourglass(z: Tensor, labels: Tensor) -> Tensor:
    """Eq. 6 for q = 1."""
    classes = z.shape[1]
    scale = (1 + classes) / (z.sum(1, keepdim=True).abs() + classes)
    return pair_sum(z, labels, labels / labels.sum(1, keepdim=True) / scale)


def backward(
    loss: Callable[[Tensor, Tensor], Tensor], z: Tensor, labels: Tensor
) -> Callable[[], object]:
    def run() -> None:
        z.grad = None
        loss(z, labels).backward()

    return run


def main() -> None:
    """Print one line a loss and shape."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5, help="timed runs; medians are shown")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    arguments = parser.parse_args()
    timed = partial(in_turn, runs=arguments.runs, clock=clock(arguments.clock))
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {_LABELS} labels a row")
    print(f"{'loss':18}{'B x K':>12}{'pairs ms':>10}{'ms':>8}{'ratio':>8}{'pairs MB':>10}{'MB':>6}")
    losses = {
        "sparsegen-lin": (printed_gen, sparsegen_hinge_loss),
        "sparsehourglass": (printed_hourglass, sparsehourglass_hinge_loss),
    }
    for rows, classes in SHAPES:
        generator = torch.Generator().manual_seed(0)
        z = torch.randn(rows, classes, generator=generator).requires_grad_()
        place = torch.rand(rows, classes, generator=generator).topk(_LABELS).indices
        labels = torch.zeros(rows, classes, dtype=torch.bool).scatter(1, place, True)
        for name, (printed, ours) in losses.items():
            slow, fast = timed([backward(printed, z, labels), backward(ours, z, labels)])
            megabytes = rows * classes * z.element_size() / 1e6
            print(
                f"{name:18}{f'{rows} x {classes}':>12}{1e3 * slow:>10.1f}{1e3 * fast:>8.2f}"
                f"{slow / fast:>8.0f}{megabytes * classes:>10.0f}{megabytes:>6.1f}",
                flush=True,
            )
            ratio(f"sum over pairs / {name}, {rows} x {classes}", slow / fast)


if __name__ == "__main__":
    main()
