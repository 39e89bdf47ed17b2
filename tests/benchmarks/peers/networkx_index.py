"""networkx: an edge list file to a graph and its compressed sparse rows.

networkx_index.py EDGES.csv
"""

import sys

import networkx
from serving import Clock, serve


def read() -> dict:
    with Clock() as clock, open(sys.argv[1], "rb") as stream:
        next(stream)  # names of the columns
        graph = networkx.read_edgelist(stream, delimiter=",", data=False)
        rows = networkx.to_scipy_sparse_array(graph, format="csr")
    return {"vertices": rows.shape[0], "edges": rows.nnz, **clock.seconds()}


serve(lambda request: {}, read)
