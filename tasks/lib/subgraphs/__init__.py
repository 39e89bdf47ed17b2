"""Sampled subgraphs: specification, draws, shards."""
