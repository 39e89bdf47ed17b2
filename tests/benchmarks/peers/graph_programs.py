"""Algorithms of networkit or igraph on the arrays of an index dataset.

    graph_programs.py networkit|igraph INDEX WEIGHTED(0|1)
    {"work": name, "threads"} -> {"wall_s", "cpu_s", "answer"}

The graph is built before the first work.
"""

import sys
from pathlib import Path

import numpy as np
from serving import Clock, serve

graph = None


def edges() -> tuple:
    """Ends of each edge once, vertices, and weights or None."""
    folder = Path(sys.argv[2])
    indptr, indices = np.load(folder / "indptr.npy"), np.load(folder / "indices.npy")
    rows = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    once = rows < indices
    weights = np.load(folder / "weights.npy")[once].astype(np.float64) if sys.argv[3] == "1" else None
    return rows[once], indices[once], len(indptr) - 1, weights


def prepare() -> dict:
    global graph
    sources, targets, vertices, weights = edges()
    if sys.argv[1] == "igraph":
        import igraph

        graph = igraph.Graph(n=vertices, edges=np.stack([sources, targets], 1))
        if weights is not None:
            graph.es["weight"] = weights
        return {"vertices": vertices, "edges": graph.ecount()}
    import networkit

    values = np.ones(len(sources)) if weights is None else weights
    ends = sources.astype(np.uint64), targets.astype(np.uint64)
    graph = networkit.GraphFromCoo((values, ends), n=vertices, weighted=weights is not None, directed=False)
    return {"vertices": vertices, "edges": graph.numberOfEdges()}


def of_networkit(work: str, threads: int):
    """A function that does the work, and one of its outcome to the answer."""
    import networkit

    networkit.setNumberOfThreads(threads)
    if work == "pagerank":
        made = networkit.centrality.PageRank(graph, damp=0.85, tol=1e-6)
        made.norm = networkit.centrality.Norm.L1_NORM
        return made.run, lambda: made.numberOfIterations()
    if work == "components":
        made = networkit.components.ConnectedComponents(graph)
        return made.run, lambda: made.numberOfComponents()
    if work == "sssp":
        made = networkit.distance.Dijkstra(graph, 0, storePaths=False)
        return made.run, lambda: sum(each < 1e300 for each in made.getDistances())
    if work == "kcore":
        made = networkit.centrality.CoreDecomposition(graph)
        return made.run, lambda: made.maxCoreNumber()
    raise ValueError(work)


def of_igraph(work: str):
    found = {}
    works = {
        "pagerank": lambda: found.update(answer=max(graph.pagerank(damping=0.85))),
        "kcore": lambda: found.update(answer=max(graph.coreness())),
        "colour": lambda: found.update(answer=max(graph.vertex_coloring_greedy()) + 1),
        "triangles": lambda: found.update(answer=graph.transitivity_undirected()),
    }
    return works[work], lambda: found["answer"]


def answer(request: dict) -> dict:
    work, result = (
        of_igraph(request["work"]) if sys.argv[1] == "igraph" else of_networkit(request["work"], request["threads"])
    )
    with Clock() as clock:
        work()
    return {**clock.seconds(), "answer": float(result())}


serve(answer, prepare)
