"""Compare maps as a translation model's attention: scores, support, and heat maps.

    python examples/mt_attention_study.py --config configs/mt_sparse_study.yaml

Each model is trained by ``train_mt.py``'s code, as its configuration says, with the monitor on; the
study ends where the monitor and the check of a saved model disagree. A model is kept in a folder of
its own, and not trained again by a later call with the same arguments: only the figure is then new.
To train it again, remove the folder.

``<workdir>`` gets ``results.csv``, a line a trained model, and ``attention.png`` if matplotlib is
installed: test sentences down, models across.

Exit status: 0; 1 if the monitor and the check of a saved model disagree; 2 if there is no corpus to
train on, or nothing like what is to be drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from jsonargparse import auto_cli

from mt.corpus import CorpusError
from mt.drawing import Drawing, DrawingError, panels
from mt.heat_map import figure
from mt.study import Grid, Result, StudyError, run_study
from mt.tables import table, write_csv


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
    training: list[str],
    attentions: list[Grid],
    seeds: list[int],
    drawing: Drawing,
    workdir: str = "runs/mt_sparse_study",
) -> int:
    """Compare maps as the attention to the source.

    Args:
        training: arguments for ``train_mt.py`` that all trainings share.
        attentions: maps and their parameters.
        seeds: the study is run once for each.
        drawing: what the figure shows.
        workdir: folder for all output.

    Returns:
        The exit status.
    """
    folder = Path(workdir)
    results: list[Result] = []
    try:
        drawing.check(attentions)
        for result in run_study(training, attentions, seeds, folder):
            results.append(result)
            print(f"{result.label}, seed {result.seed}: BLEU {result.bleu:.1f}", flush=True)
        write_csv(results, folder / "results.csv")
        print(f"\n{table(results)}\n\nAll results: {folder / 'results.csv'}")
        if find_spec("matplotlib") is None:
            print("No figure: matplotlib isn't installed (pip install matplotlib).")
            return 0
        sentences = panels(results, drawing, training, folder)
    except (CorpusError, DrawingError, StudyError) as problem:
        print(f"mt_attention_study: {problem}", file=sys.stderr)
        return 1 if isinstance(problem, StudyError) else 2
    drawn = figure(drawing.models, sentences, len(drawing.models))
    drawn.savefig(folder / "attention.png")
    print(f"Figure: {folder / 'attention.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
