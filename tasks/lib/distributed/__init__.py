"""Distributed data structures: exchange between ranks, shared memory, partition book, shards, key-value store."""
