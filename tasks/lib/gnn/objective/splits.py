"""Who of what is learned is trained on, validated on, and tested."""

SPLITS = ("train", "validation", "test")
