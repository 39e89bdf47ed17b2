"""Graphs in parts: what stages share whose tasks each hold a part of a graph, on the members of an engine."""
