"""What a study of attention found, as a CSV and as a table to print."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev

from mt.study import Result


def write_csv(results: Sequence[Result], path: Path) -> None:
    """Write one line a trained model, under a header; a column a layer for the support."""
    rows = [asdict(result) for result in results]
    for row in rows:
        row |= {f"support_{layer}": mean for layer, mean in enumerate(row.pop("support"))}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def table(results: Sequence[Result]) -> str:
    """Means over seeds, with deviations of BLEU and chrF; a star at a map's best parameter.

    The best one has the lowest mean validation loss.
    """
    by_label: dict[str, list[Result]] = {}
    for result in results:
        by_label.setdefault(result.label, []).append(result)
    losses = {label: fmean(r.valid_loss for r in same) for label, same in by_label.items()}
    lines = [
        f"{'attention':<28}{'valid loss':>11}{'BLEU':>13}{'chrF':>13}  {'support':<16}"
        f"{'unargmaxable':>12}{'undecided':>11}"
    ]
    for label, same in by_label.items():
        of_map = {r.label for r in results if r.map == same[0].map}
        best = len(of_map) > 1 and losses[label] == min(losses[other] for other in of_map)
        layers = zip(*(r.support for r in same), strict=True)
        lines.append(
            f"{label + ' *' * best:<28}{losses[label]:>11.3f}"
            f"{_spread([r.bleu for r in same]):>13}{_spread([r.chrf for r in same]):>13}"
            f"  {', '.join(f'{fmean(layer):.1f}' for layer in layers):<16}"
            f"{fmean(r.unargmaxable for r in same):>12.0f}{fmean(r.undecided for r in same):>11.0f}"
        )
    seeds, length = len({r.seed for r in results}), fmean(r.length for r in results)
    lines.append(
        f"{seeds} seed(s), {length:.1f} source tokens; *: lowest validation loss of its map"
    )
    return "\n".join(lines)


def _spread(scores: Sequence[float]) -> str:
    return f"{fmean(scores):.1f}" + (f" ± {stdev(scores):.1f}" if len(scores) > 1 else "")
