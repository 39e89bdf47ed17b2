"""Importers of graphs in formats of other projects."""
