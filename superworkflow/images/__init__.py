"""Commands that images run while they are built."""
