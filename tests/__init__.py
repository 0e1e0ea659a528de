"""Tests of unarg_callback."""
