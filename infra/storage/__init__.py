"""Datasets and sources, on a disk or an object store: names, digests, locks, whole files."""
