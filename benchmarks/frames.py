"""Braid Reflect on raw weights (the paper) and on whitened ones: what each leaves unproven.

Usage: ``python -m benchmarks.frames [--patience 15]``
"""

from __future__ import annotations

import argparse

import torch

from benchmarks.timing import ratio, real_layers
from unarg_callback import Domain, OutputLayer, verify
from unarg_callback.geometry.checker import Checker
from unarg_callback.search.reflect import paper_search


def raw(layer: OutputLayer, patience: int) -> int:
    """Classes that the paper's form leaves unproven in the box 100."""
    with torch.no_grad():
        state = paper_search(Checker(layer, Domain.box(100.0)), patience=patience)
    return int((~state.proven).sum())


def main() -> None:
    """Print one line a layer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--patience", type=int, default=15, help="reflections a class")
    patience = parser.parse_args().patience
    print(f"box:100, {patience} reflections a class at most")
    print(f"{'layer':16}{'left, raw':>11}{'left, whitened':>16}{'unargmaxable':>14}")
    names = ("g2pm", "ppocrv4_rec_ch", "ru64_550", "ru16_300")
    for name, layer in real_layers(*names).items():
        counts = verify(layer, patience=patience).counts
        left, whitened = raw(layer, patience), counts["potentially_unargmaxable"]
        print(f"{name:16}{left:>11}{whitened:>16}{counts['unargmaxable']:>14}")
        ratio(f"left unproven, raw / whitened, {name}", left / max(whitened, 1))


if __name__ == "__main__":
    main()
