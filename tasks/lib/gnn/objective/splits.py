"""Names of the splits."""

SPLITS = ("train", "validation", "test")
