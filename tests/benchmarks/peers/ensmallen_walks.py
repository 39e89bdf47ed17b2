"""Random walks of ensmallen (the Rust core of GRAPE), exact, with no limit on the neighbours that it looks at.

ensmallen_walks.py EDGES.csv WEIGHTED(0|1)
{"p", "q", "walk_length", "walks"} -> {"steps", "wall_s", "cpu_s"}
"""

import sys

from ensmallen import Graph
from serving import Clock, serve

graph: Graph


def prepare() -> dict:
    global graph
    weights = {"weights_column": "weight"} if sys.argv[2] == "1" else {}
    graph = Graph.from_csv(
        edge_path=sys.argv[1], edge_list_separator=",", edge_list_header=True, sources_column="source",
        destinations_column="target", edge_list_numeric_node_ids=True, directed=False, verbose=False, name="graph",
        **weights,
    )  # fmt: skip
    return {"vertices": graph.get_number_of_nodes(), "edges": graph.get_number_of_directed_edges()}


def answer(request: dict) -> dict:
    vertices = graph.get_number_of_nodes()
    rounds = max(1, request["walks"] // vertices)
    with Clock() as clock:
        walks = graph.random_walks(
            walk_length=request["walk_length"], quantity=min(vertices, request["walks"]), iterations=rounds,
            return_weight=1 / request["p"], explore_weight=1 / request["q"], random_state=request["seed"],
        )  # fmt: skip
    return {"steps": walks.shape[0] * (walks.shape[1] - 1), **clock.seconds()}


serve(answer, prepare)
