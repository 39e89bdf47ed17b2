"""Benchmarks: `make bench` measures the project and its peers; `.scaling` shows the cost by size."""
