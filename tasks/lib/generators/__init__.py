"""Generators of random graphs for benchmarks and trials."""
