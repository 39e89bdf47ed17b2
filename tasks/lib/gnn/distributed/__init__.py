"""Distributed mini-batches: sampling, feature rows and embeddings over the partitions of a worker group."""
