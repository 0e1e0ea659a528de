"""How many of the classes that became unargmaxable had been on the list of those at risk before.

Usage: ``python -m benchmarks.early_warning``

One line for each pair of snapshots: the classes that were argmaxable at the first and are proven
unargmaxable at the second, and how many of them were among the first 50, 200 and 1,000 at risk.
"""

from __future__ import annotations

import numpy as np

from benchmarks.timing import ratio, real_layers
from unarg_callback import IncrementalVerifier, Status
from unarg_callback.monitoring.early_warning import AtRisk, LeadHistory, forewarned

_LENGTHS = (50, 200, 1000)
_SNAPSHOTS = tuple(f"ru16_{step}" for step in (0, 100, 200, 300, 400))


def main() -> None:
    """Print one line a pair of snapshots, without and with deepening."""
    listed = "".join(f"{f'of {length}':>9}" for length in _LENGTHS)
    print(f"{'deepened':>9}{'from':>10}{'to':>10}{'lost':>6}{listed}")
    layers = real_layers(*_SNAPSHOTS)
    for deepened in (0, 512, 25_000):
        verifier, history = IncrementalVerifier(deepen=deepened), LeadHistory()
        lists: dict[int, tuple[AtRisk, ...]] = {}
        before, at = np.zeros(0, np.int8), ""
        for name, layer in layers.items():
            report = verifier.update(layer)
            if at:
                gone = (before == Status.ARGMAXABLE) & (report.status == Status.UNARGMAXABLE)
                lost = np.flatnonzero(gone)
                hits = [forewarned(lists[k], lost) for k in _LENGTHS]
                found = "".join(f"{hit:>9}" for hit in hits)
                print(f"{deepened:>9}{at:>10}{name:>10}{len(lost):>6}{found}", flush=True)
                what = f"first {_LENGTHS[-1]} / lost, {at} to {name[5:]}, deepen {deepened}"
                ratio(what, hits[-1] / max(len(lost), 1))
            history.update(report.status, report.lead, report.scale, report.measured)
            lists = {length: history.at_risk(length) for length in _LENGTHS}
            before, at = report.status, name


if __name__ == "__main__":
    main()
