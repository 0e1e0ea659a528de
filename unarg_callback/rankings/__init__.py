"""Which rankings of the classes a layer can produce at all: how many, and in the plane which."""

from unarg_callback.rankings.counts import feasible_rankings, table_of_rankings
from unarg_callback.rankings.plane import Cell, cells, wins

__all__ = ["Cell", "cells", "feasible_rankings", "table_of_rankings", "wins"]
