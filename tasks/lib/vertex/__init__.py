"""Vertex programs: one update function, run in parallel with the result of one sequential execution."""
