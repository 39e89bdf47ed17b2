"""Vectors of some nodes out of a dataset of embeddings, read as a stream."""

from __future__ import annotations
