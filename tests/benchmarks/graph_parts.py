"""`python -m tests.benchmarks.graph_parts FOLDER [GRAPH ...]`: one and two graph servers with and without parts.

GCN and GAT of three layers, 128 wide, in 16 intervals, each server with one thread, on this machine. Two graphs of the
stochastic block model, with few and with many communities, whose vertices are in random order; and real ones of
`SUPERWORKFLOW_TEST_DATA` with random features. Prints a row for each with medians of `TIMES` runs in turn: seconds and
CPU seconds an epoch, those before the first, ghosts, bytes; before the rows, what the parts cut.
Files of runs with the same parts are compared: one server's and two servers' are the same bytes.
"""

import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from superworkflow.__main__ import main as superworkflow
from superworkflow.infra.storage.dataset import Dataset
from tests.benchmarks.graph_servers import PARAMS, SAME, each_epoch, show, trained
from tests.benchmarks.intervals import PARTS, edges_of
from tests.benchmarks.pipelines import CLASSES, EDGES, VERTICES, WIDTH, staged

TIMES = 3
PLANTED = {"20 communities": (20, 0.7), "400 communities": (400, 0.98)}
"""Communities, and the share of edges within one."""
_STATS = "epoch_s", "graph.cpu_s", "graph.setup_s"


def edge_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Names of the graphs, and files of their edges."""
    for name, (communities, share) in PLANTED.items():
        files = folder / name
        if not files.exists():
            given = {"nodes": VERTICES, "edges": EDGES, "communities": communities, "width": WIDTH, "homophily": share}
            words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
            assert not superworkflow(["generate", "--model", "csbm", *words, "--out", str(files)])
        yield name, str(next(files.glob("edges.*")))
    yield from edges_of(Path(os.environ["SUPERWORKFLOW_TEST_DATA"]), folder)


def inputs_of(edges: str, folder: Path) -> dict[str, str]:
    """Graph with random features and labels, its sums, and its parts."""
    folder.mkdir(exist_ok=True)
    table = pacsv.read_csv(edges) if edges.endswith("csv") else pq.read_table(edges)
    nodes = np.unique(np.concatenate([np.asarray(table.column(each)) for each in range(2)]))
    rng = np.random.default_rng(1)
    numbers = pa.array(rng.normal(size=len(nodes) * WIDTH).astype(np.float32))
    columns = {
        "features": pa.FixedSizeListArray.from_arrays(numbers, WIDTH),
        "labels": pa.array([f"k{each}" for each in rng.integers(0, CLASSES, len(nodes))]),
    }
    files = {"edges": edges}
    for name, values in columns.items():
        files[name] = str(folder / f"{name}.parquet")
        pq.write_table(pa.table({"node": nodes, name.removesuffix("s"): values}), files[name])
    staged("heterograph", {}, files, folder / "graph")
    graph = {"graph": str(folder / "graph")}
    staged("aggregate", {"form": "gcn"}, graph, folder / "sums")
    staged("partition", {"parts": PARTS}, graph, folder / "parts")
    return graph | {name: str(folder / name) for name in ("sums", "parts")}


def main(folder: Path, chosen: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = "graph", "network", "parts", "graph servers", "s an epoch", "CPU s an epoch", "CPU s before", "ghosts"
    show([*names, "Scatter, MB an epoch"])
    show(["---"] * 3 + ["---:"] * 6)
    for name, edges in edge_files(folder):
        if chosen and name not in chosen:
            continue
        inputs = inputs_of(edges, folder / f"{name} made")
        divided = Dataset.open(inputs["parts"])
        stats = {each: float(str(divided.stats[each])) for each in ("cut.2", "cut", "edges")}
        shares = f"{stats['cut.2'] / stats['edges']:.1%}, {stats['cut'] / stats['edges']:.1%}"
        sys.stdout.write(f"{name}: 2 and {PARTS} parts cut {shares}\n")
        for model in ("gcn", "gat"):
            compare(name, model, inputs, folder / "run")


def compare(name: str, model: str, inputs: dict[str, str], output: Path) -> None:
    """A row for each number of servers, without and with parts."""
    params, runs = PARAMS | {"model": model, "intervals": 16}, dict[tuple[str, int], list[Dataset]]()
    figures, files = dict[tuple[str, int], list[list[float]]](), dict[str, list[bytes]]()
    for _ in range(TIMES):
        for parts in ("no", "yes"):
            left_out = {"no": {"parts"}, "yes": set[str]()}[parts] | ({"sums"} if model == "gat" else set())
            given = {each: uri for each, uri in inputs.items() if each not in left_out}
            for servers in (1, 2):
                found = trained(params, given, output, servers)
                own = [found.local(file).read_bytes() for file in SAME]
                assert files.setdefault(parts, own) == own
                runs.setdefault((parts, servers), []).append(found)
                figures.setdefault((parts, servers), []).append([float(str(found.stats[each])) for each in _STATS])
    for (parts, servers), rows in figures.items():
        each_s = statistics.median(row[0] for row in rows)
        cpu_s = statistics.median((row[1] - row[2]) / PARAMS["epochs"] for row in rows)
        found = runs[parts, servers][0]
        show([name, model, parts, str(servers), f"{each_s:.4f}", f"{cpu_s:.4f}",
              f"{statistics.median(row[2] for row in rows):.1f}", each_epoch(found, "ghosts"),
              each_epoch(found, "scatter_bytes")])  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
