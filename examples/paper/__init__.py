"""The tables and figures of the paper that this package is about, one script each."""
