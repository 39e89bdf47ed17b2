"""ensmallen: an edge list file with labels to its graph in memory.

ensmallen_index.py EDGES.csv
"""

import sys

from ensmallen import Graph
from serving import Clock, serve


def read() -> dict:
    with Clock() as clock:
        graph = Graph.from_csv(
            edge_path=sys.argv[1], edge_list_separator=",", edge_list_header=True, sources_column="source",
            destinations_column="target", directed=False, verbose=False, name="graph",
        )  # fmt: skip
        facts = {"vertices": graph.get_number_of_nodes(), "edges": graph.get_number_of_directed_edges()}
    return {**facts, **clock.seconds()}


serve(lambda request: {}, read)
