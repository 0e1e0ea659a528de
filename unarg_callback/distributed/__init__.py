"""One check by several processes: with the layer on each of them, or a part of its rows on each."""
