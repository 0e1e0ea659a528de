"""Errors that a user can act on: what was found, what was expected, what to do."""

from __future__ import annotations


class UnargError(ValueError):
    """Bad input to this package; the message is one line a person can act on."""


class LayerError(UnargError):
    """Weight, bias, names or excluded classes do not make an output layer."""


class DomainError(UnargError):
    """Bounds do not make a domain, or do not fit the layer."""


class CheckpointError(UnargError):
    """A file holds no readable output layer, or more than one."""


class NotFiniteError(LayerError):
    """A class that takes part has NaN or infinite weights or bias."""
