"""Output layers from files: one reader a format; each refuses unless exactly one layer fits."""

from unarg_callback.checkpoints.labels import read_labels
from unarg_callback.checkpoints.read import locate_layer, open_file, read_layer
from unarg_callback.checkpoints.regular_files import require_regular_file
from unarg_callback.checkpoints.select import LocatedLayer
from unarg_callback.checkpoints.tensor_file import Orientation
from unarg_callback.checkpoints.vocabulary import Exclusion

__all__ = [
    "Exclusion",
    "LocatedLayer",
    "Orientation",
    "locate_layer",
    "open_file",
    "read_labels",
    "read_layer",
    "require_regular_file",
]
