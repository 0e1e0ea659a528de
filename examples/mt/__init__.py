"""A small Transformer for machine translation: corpus, subwords, model, training."""

import os

# Threads that spin for long while they wait make training many times slower on a busy machine.
# Here, because it has to be set before torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
