"""Neighbour sampling: kernels, blocks, mini-batches."""
