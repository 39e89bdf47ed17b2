"""Subgraphs on Spark with the rows of the graph in parts: rows stay with their tasks, requests for draws travel."""
