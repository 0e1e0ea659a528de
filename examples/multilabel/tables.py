"""What a study found, as a table to print."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from multilabel.study import Result

_SCORES = ("f_micro", "f_macro", "jsd", "support", "labels")


def table(results: Sequence[Result]) -> str:
    """Test scores of the selected parameters: the mean over seeds and, of F, the deviation."""
    chosen = [result for result in results if result.selected]
    lines = [
        f"{'setting':<10}{'value':>7}  {'map+loss':<23}{'micro F':>15}{'macro F':>9}"
        f"{'JSD':>8}{'nonzeros':>10}{'predicted':>11}{'true':>7}"
    ]
    for setting, value, method in dict.fromkeys((r.setting, r.value, r.method) for r in chosen):
        same = [r for r in chosen if (r.setting, r.value, r.method) == (setting, value, method)]
        f, macro, jsd, support, labels = (fmean(getattr(r, name) for r in same) for name in _SCORES)
        spread = stdev(r.f_micro for r in same) if len(same) > 1 else 0.0
        true = fmean(r.true_labels for r in same)
        lines.append(
            f"{setting:<10}{value:>7g}  {method:<23}{f:>8.3f} ±{spread:.3f}{macro:>9.3f}"
            f"{jsd:>8.4f}{support:>10.2f}{labels:>11.2f}{true:>7.2f}"
        )
    return "\n".join(lines)
