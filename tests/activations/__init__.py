"""Tests of the maps from scores to probabilities."""
