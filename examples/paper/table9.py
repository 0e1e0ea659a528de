"""Table 9: the range of the inputs of a translation model's output layer, from a recorded run.

    python examples/train_mt.py --config configs/mt_small.yaml
    python examples/paper/table9.py runs/mt_small/model.ckpt

reads what the monitor of that run has observed (``observe: true``) from its checkpoint.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from unarg_callback.monitoring.activation_range import ActivationRange
from unarg_callback.monitoring.activation_report import Table9


def main() -> int:
    """Print the table; 1 if the checkpoint has nothing to put in it."""
    parser = argparse.ArgumentParser(description="Table 9 of the paper.")
    parser.add_argument("checkpoints", type=Path, nargs="+", metavar="CHECKPOINT")
    found = [row for path in parser.parse_args().checkpoints for row in rows(path)]
    if not found:
        print("No monitor has observed inputs there; train with observe: true.", file=sys.stderr)
        return 1
    head, line, _ = str(found[0]).split("\n")
    print("\n".join([head, line, *(str(row).split("\n")[-1] for row in found)]))
    return 0


def rows(path: Path) -> list[Table9]:
    """A row for each head that the monitor in a Lightning checkpoint has observed."""
    # Tensors and builtins alone: nothing of the file is executed.
    state = torch.load(path, map_location="cpu", weights_only=True)
    found = []
    for name, callback in state.get("callbacks", {}).items():
        if not name.startswith("UnargmaxabilityMonitor"):
            continue
        for head, kept in callback["heads"].items():
            observed = ActivationRange()
            if kept.get("observation"):
                observed.load_state_dict(kept["observation"]["range"])
            if observed.tokens:
                found.append(observed.table9(f"{path.parent.name} {head}"))
    return found


if __name__ == "__main__":
    sys.exit(main())
