"""A small Transformer for machine translation: corpus, subwords, model."""
