"""One stage in its own process: made, measured, ended."""
