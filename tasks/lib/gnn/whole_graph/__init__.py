"""Training on whole graphs: kernels over all rows of a graph, layers in tasks on intervals, and their pipeline."""
