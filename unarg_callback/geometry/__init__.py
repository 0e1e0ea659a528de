"""The mathematical objects: a layer, a domain, proofs and their checker."""
