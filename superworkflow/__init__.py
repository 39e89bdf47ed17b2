"""Superworkflow: graph-learning pipelines in which every stage chooses its own engine, image and resources."""

__version__ = "0.1.0"
