"""Output layers all of whose classes are argmaxable, by how they are parametrised.

Each is a module for :func:`torch.nn.utils.parametrize.register_parametrization`, and a function
that puts it on a linear layer. Classes with equal rows can't be told apart by any of them: they
tie, and stay unargmaxable. See ``docs/prevention.md`` for conditions and for what it costs.
"""

from unarg_callback.prevention.two_unit_coordinates import (
    TwoUnitCoordinates,
    two_unit_coordinates,
)
from unarg_callback.prevention.unit_rows import UnitRows, unit_rows
from unarg_callback.prevention.voronoi import VoronoiBias, voronoi_bias

__all__ = [
    "TwoUnitCoordinates",
    "UnitRows",
    "VoronoiBias",
    "two_unit_coordinates",
    "unit_rows",
    "voronoi_bias",
]
