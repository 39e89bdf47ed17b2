"""Walks on Spark with the adjacency partitioned: rows stay with a task, walkers move between tasks.

`driver` runs the jobs of Spark and `supersteps` is what their tasks do; `vertex_ranges` cuts the graph, `walker_batch`
is many walkers in arrays and in bytes, `advance` and `mixture_step` are the kernels that take walkers further.
"""
