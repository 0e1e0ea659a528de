"""Tests of the losses of the sparse maps."""
