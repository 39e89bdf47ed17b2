"""Graphs in memory and in datasets: CSR, typed graphs, their schema and integrity."""
