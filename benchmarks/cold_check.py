"""Cold checks of real layers, as ratios to the bare product of all rows with all rows.

Usage: ``python -m benchmarks.cold_check [--runs 3]``

Each layer is verified from scratch, proofs included, next to the one product that no check can do
without: every row against every row, C x C x d, in float32 and in blocks that fit in memory.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch

from benchmarks.timing import ratio, real_layers, seconds
from unarg_callback import verify

_BLOCK = 1024


def bare_product(weight: torch.Tensor) -> None:
    """Multiply all rows with all rows, and keep nothing."""
    out = torch.empty(_BLOCK, len(weight))
    for rows in weight.split(_BLOCK):
        torch.mm(rows, weight.T, out=out[: len(rows)])


def main() -> None:
    """Print one line a layer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3, help="timed runs; the median is shown")
    runs = parser.parse_args().runs
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, box:100")
    print(
        f"{'layer':16}{'C x d':>12}{'unargmaxable':>14}{'undecided':>11}"
        f"{'product s':>11}{'check s':>9}{'ratio':>8}"
    )
    names = ("g2pm", "ppocrv4_rec_ch", "ppocrv5_rec_mobile", "ru64_550", "ru16_0", "ru16_300")
    for name, layer in real_layers(*names).items():
        counts = verify(layer).counts
        product = seconds(partial(bare_product, layer.weight.float()), runs)
        check = seconds(partial(verify, layer), runs)
        print(
            f"{name:16}{f'{layer.classes} x {layer.dim}':>12}{counts['unargmaxable']:>14}"
            f"{counts['undecided']:>11}{product:>11.3f}{check:>9.2f}{check / product:>8.1f}"
        )
        ratio(f"check / product W W', {name}", check / product)


if __name__ == "__main__":
    main()
