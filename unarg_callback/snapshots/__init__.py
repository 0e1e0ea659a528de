"""Copies of output layers, taken from live models."""
