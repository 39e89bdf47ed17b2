"""Names of the splits."""

SPLITS = ("train", "validation", "test")
BY_NAME = {**{name: name for name in SPLITS}, "valid": "validation", "val": "validation"}
"""Splits by the names that files have for them."""
