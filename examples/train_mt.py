"""Train a small translation model with the monitor on, then check the saved file again.

    python examples/train_mt.py --config configs/mt_small.yaml
    python examples/train_mt.py --config configs/mt_small.yaml --corpus my.tsv.gz --workdir runs/my

Without ``--corpus`` the parallel text is JupyterLab's own user interface in English and French,
from the catalogues of an installed language pack. Any other part of the configuration can be given
on the command line too, such as ``--model.output_width 32`` or ``--trainer.max_epochs 5``.

The default output layer has 12 features for some 2,500 target tokens. That is far too narrow for
a good translator and is chosen for that reason: so narrow a layer has tokens that no input makes
the argmax, and who they are changes as it trains, so there is something true to see in minutes.
The translations are as good as such a model and 2,500 sentence pairs allow.

Exit status: 0 if the monitor and the check of the saved file agree, 1 if they don't or there was no
final check, 2 if there is no corpus to train on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mt.corpus import CorpusError
from mt.training import run, set_up


def main(argv: Sequence[str] | None = None) -> int:
    """Train, test, save, check the file, compare.

    Args:
        argv: the arguments; those of the process if None.

    Returns:
        The exit status.
    """
    try:
        cli = set_up(argv)
    except CorpusError as problem:
        print(f"train_mt: {problem}", file=sys.stderr)
        return 2
    return run(cli)


if __name__ == "__main__":
    sys.exit(main())
