"""Vertex programs on a worker group: each worker updates its vertices, and has copies of their neighbours."""
