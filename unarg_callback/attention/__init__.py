"""Which keys of an attention layer no query can put first, with a proof of each verdict."""

from __future__ import annotations

from unarg_callback.attention.report import KeyReport
from unarg_callback.attention.verification import KeysError, verify_keys

__all__ = ["KeyReport", "KeysError", "verify_keys"]
