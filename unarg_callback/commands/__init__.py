"""Subcommands of ``unarg``, one a module; each adds itself to the parser with ``add``."""
