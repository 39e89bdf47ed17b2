"""Compiled kernels of walks on a graph in memory.

`adjacency` is the graph as they read it, `starts` where each walk begins and its random stream, `second_order` what a
random word decides, `alias_table` and `edge_filter` the tables behind it. `first_order`, `rejection` and `mixture` are
three ways to advance many walkers at once; `Walker` chooses. `edge_filter_size` needs no Numba.
"""
