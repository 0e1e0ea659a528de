"""Compare maps and losses for sets of labels, on real or synthetic data.

    python examples/train_multilabel.py --config configs/multilabel_synthetic.yaml
    python examples/train_multilabel.py --config configs/multilabel_scene.yaml --data.folder mulan

Real data are those of the Mulan project (https://mulan.sourceforge.net/datasets-mlc.html);
``--data.folder`` is where ``scene-train.arff``, ``scene-test.arff`` and ``scene.xml`` are. A linear
model is trained with each map and loss, for each value of its parameter and each seed. Validation
rows choose the epoch, the parameter and, for softmax, the threshold.

``<workdir>`` gets ``results.csv``, a line a trained model, and figures if matplotlib is installed.

Exit status: 0, or 2 if there is no data to train on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from jsonargparse import auto_cli

from multilabel.data import DataError, Source
from multilabel.figures import draw_all
from multilabel.study import Grid, Result, Training, run_study, write_csv
from multilabel.tables import table


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study that the arguments describe.

    Args:
        argv: the arguments; those of the process if None.

    Returns:
        The exit status.
    """
    status: int = auto_cli(compare, args=None if argv is None else list(argv), as_positional=False)
    return status


def compare(
    data: Source,
    heads: list[Grid],
    training: Training,
    seeds: list[int],
    workdir: str = "runs/multilabel",
) -> int:
    """Compare maps and losses for sets of labels.

    Args:
        data: data sets.
        heads: methods and their parameters.
        training: how heads are trained.
        seeds: the study is run once for each.
        workdir: folder for all output.

    Returns:
        The exit status.
    """
    folder = Path(workdir)
    folder.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    try:
        for result in run_study(data, heads, training, seeds):
            results.append(result)
            if sys.stderr.isatty():
                print(f"\r{len(results)} models", end="", file=sys.stderr, flush=True)
    except DataError as problem:
        print(f"train_multilabel: {problem}", file=sys.stderr)
        return 2
    write_csv(results, folder / "results.csv")
    print(table(results))
    print(f"\nAll results: {folder / 'results.csv'}")
    if find_spec("matplotlib") is None:
        print("No figures: matplotlib isn't installed (pip install matplotlib).")
        return 0
    for path in draw_all(results, folder):
        print(f"Figure: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
