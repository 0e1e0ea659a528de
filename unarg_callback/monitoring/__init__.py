"""Check layers again and again while they train; no training framework is needed."""
