"""Dashboards: the terminal's tables, comparisons of runs, pictures, and the web pages."""
