"""Output layers from files: one reader a format; each refuses unless exactly one layer fits."""

from unarg_callback.checkpoints.labels import read_labels
from unarg_callback.checkpoints.read import locate_layer, open_file, read_layer
from unarg_callback.checkpoints.select import LocatedLayer, Orientation

__all__ = [
    "LocatedLayer",
    "Orientation",
    "locate_layer",
    "open_file",
    "read_labels",
    "read_layer",
]
