"""Searches for candidate proofs; the checker in ``geometry`` decides which of them hold."""
