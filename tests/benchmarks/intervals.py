"""`python -m tests.benchmarks.intervals FOLDER`: arcs of intervals on real graphs, as they are, balanced, along parts.

Reads the graphs of `SUPERWORKFLOW_TEST_DATA`. Prints a row for each graph and number of intervals: how far the interval
with the fewest arcs and the one with the most are from the mean, in arcs that gathers read and in those from other
intervals; the share of arcs that are between intervals; how many vertices changed places, and CPU milliseconds.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.io import loadmat

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.distributed.partition import NodePartition
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.train_full.vertex_order import Parts, VertexOrder, even_order, plain_order
from tests.benchmarks.graph_servers import show
from tests.benchmarks.pipelines import staged
from tests.tasks.test_gnn_quality import write_edges
from tests.tasks.test_vertex_order import measures

COUNTS, PARTS = (8, 16), 32


def edges_of(data: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Names of the graphs, and files of their edges."""
    for name in ("cora", "citeseer"):
        shutil.rmtree(folder / name, ignore_errors=True)
        yield name, write_edges(data / "planetoid", name, folder / name)["edges"]
    one, other = np.nonzero(np.triu(loadmat(data / "blogcatalog" / "blogcatalog.mat")["network"].toarray()))
    for name, pairs in (
        ("BlogCatalog", np.stack([one, other], 1)),
        ("ego-Facebook", np.loadtxt(data / "ego-facebook" / "ego-facebook.txt", dtype=np.int64, skiprows=1)),
        ("email-Eu-core", np.loadtxt(data / "email-eu-core" / "email-Eu-core.txt", dtype=np.int64)),
    ):
        np.savetxt(folder / f"{name}.csv", pairs, "%d", ",", header="source,target", comments="")
        yield name, str(folder / f"{name}.csv")


def show_order(name: str, rows: CsrRows, order: VertexOrder, how: str, cpu_s: float) -> None:
    found, count = measures(rows, order), len(order.intervals)
    spans = [f"{each.min() / each.mean() - 1:+.0%}, {each.max() / each.mean() - 1:+.0%}" for each in found.T[[0, 2]]]
    sizes = np.diff(order.bounds)
    moved = int((order.numbers_of(np.arange(sizes.sum())) != plain_order(sizes.sum(), count).numbers_of(
        np.arange(sizes.sum()))).sum())  # fmt: skip
    show([name, f"{sizes.sum():,}, {len(rows.indices):,}", str(count), how, f"{sizes.min()}-{sizes.max()}", *spans,
          f"{found[:, 2].sum() / len(rows.indices):.0%}", str(moved), f"{1000 * cpu_s:.1f}"])  # fmt: skip


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    show(["graph", "vertices, arcs", "intervals", "order", "sizes", "arcs read", "arcs from others",
          "share from others", "moved", "CPU ms"])  # fmt: skip
    show(["---"] * 10)
    for name, edges in edges_of(Path(os.environ["SUPERWORKFLOW_TEST_DATA"]), folder):
        staged("heterograph", {}, {"edges": edges}, folder / f"{name}-graph")
        made = staged("partition", {"parts": PARTS}, {"graph": str(folder / f"{name}-graph")}, folder / f"{name}-parts")
        graph = HeteroGraph.open(Dataset.open(folder / f"{name}-graph"))
        divided, rows = NodePartition.open(made, graph), graph.rows(next(iter(graph.edge_sets)))
        (vertices,) = divided.orders.values()
        even_order(rows, 2)  # kernels are loaded
        for count in COUNTS:
            show_order(name, rows, plain_order(len(rows.indptr) - 1, count), "as they are", 0.0)
            for how, parts in (("balanced", None), (f"{PARTS} parts", Parts(vertices, divided.book[0]))):
                begun = time.process_time()
                order = even_order(rows, count, parts)
                show_order(name, rows, order, how, time.process_time() - begun)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
