"""Rooted subgraphs of a random heterograph of OGBN-MAG's sizes, by one thread of both sides: CPU seconds.

Ours makes whole subgraphs, with their nodes and edges numbered and in order. DGL draws the same hops, by its
`sample_neighbors` on an edge set at a time and `unique` between them, and keeps the edges as they come: a seed a call,
which is what gives a subgraph for each seed, or 64 seeds a call, which merges them into one.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from superworkflow.infra.storage.dataset import DatasetWriter
from superworkflow.infra.storage.manifest import Measurement
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, NodeSet
from superworkflow.tasks.lib.graph.heterograph_writer import stats_of, write_graph_file, write_ids, write_rows
from tests.benchmarks.code import kept_folder, key
from tests.benchmarks.measure import ROOT, PeerFailed, Worker, alternate, median
from tests.benchmarks.report import Row
from tests.benchmarks.setting import Setting

TFGNN = ROOT / ".oracles" / "tfgnn" / "bin" / "python"
"""What `make oracles` sets up: 2.5 GB, which is not installed for a row of the benchmark alone."""
NODES = {"author": 1_134_649, "field": 59_965, "institution": 8_740, "paper": 736_389}
EDGES = {
    "affiliated_with": ("author", "institution", 1_043_998), "cites": ("paper", "paper", 5_416_271),
    "has_topic": ("paper", "field", 7_505_078), "writes": ("author", "paper", 7_145_660),
    "written": ("paper", "author", 7_145_660),
}  # fmt: skip
HOPS = (
    ("cites", ("seed",), 32), ("written", ("seed", "cites"), 8), ("writes", ("written",), 16),
    ("affiliated_with", ("written",), 16), ("has_topic", ("seed", "cites", "writes"), 16),
)  # fmt: skip
SPEC = 'seed_op { op_name: "seed" node_set_name: "paper" }\n' + "".join(
    f'sampling_ops {{ op_name: "{name}" {" ".join(f"input_op_names: {given!r}" for given in inputs)} '
    f'edge_set_name: "{name}" sample_size: {size} strategy: RANDOM_UNIFORM }}\n'
    for name, inputs, size in HOPS
)


def sampling(setting: Setting) -> list[Row]:
    graph = mag_sized(setting)
    name = f"sampling, MAG's sizes{' / 50' if setting.quick else ''}"
    rows = [
        Row(f"{name}, rooted subgraphs", "DGL, a seed a call", "subgraphs/CPU s", setting.target(20)),
        Row(f"{name}, sampled edges", "DGL, 64 seeds merged a call", "edges/CPU s", setting.target(2)),
    ]
    python = setting.set_up_apart("dgl")
    some, many = (64, 256) if setting.quick else (256, 2048)
    try:
        with setting.own("sampling", graph) as own, setting.peer("dgl_sampling", graph, python=python) as peer:
            for worker in (own, peer):
                worker.ask(subgraphs=64, merged=64, seed=1)
            results = alternate(
                {
                    "own": lambda: own.ask(subgraphs=many, seed=2),
                    "one": lambda: peer.ask(subgraphs=some, merged=1, seed=2),
                    "merged": lambda: peer.ask(subgraphs=many, merged=64, seed=2),
                },
                setting.rounds + 2,
            )
    except PeerFailed as error:
        return [
            Row(row.name, row.peer_name, row.unit, row.target, note=f"no figure of the peer: {error}") for row in rows
        ]

    def rate(side: str, what: str) -> float:
        return median([each[what] / each["cpu_s"] for each in results[side]])

    per = {side: median([each["edges"] / each["subgraphs"] for each in results[side]]) for side in results}
    note = f"{per['own']:.0f} edges a subgraph of ours, {per['one']:.0f} of the peer's; one thread each"
    ours = [rate("own", "subgraphs"), rate("own", "edges")]
    theirs = [rate("one", "subgraphs"), rate("merged", "edges")]
    for row, mine, other in zip(rows, ours, theirs, strict=True):
        setting.say(f"{row.name}: {mine:.3g} a CPU second, {row.peer_name} {other:.3g}")
    return [
        Row(row.name, row.peer_name, row.unit, row.target, mine, other, cpu=(1 / mine, 1 / other), note=note)
        for row, mine, other in zip(rows, ours, theirs, strict=True)
    ]


def sampling_tfgnn(setting: Setting) -> list[Row]:
    """TF-GNN's sampler in memory: layers of Keras that it makes of the same spec, 64 rooted subgraphs a call."""
    graph = mag_sized(setting)

    def peer() -> Worker:
        if not TFGNN.exists():
            raise PeerFailed("make oracles sets up its environment")
        return setting.peer("tfgnn_sampling", graph, graph.parent / "mag-sized.pbtxt", python=str(TFGNN))

    return [_rooted(setting, graph, "TF-GNN in memory", 10, peer, 128 if setting.quick else 512)]


def sampling_pyg(setting: Setting) -> list[Row]:
    """torch_geometric's NeighborLoader, a seed a batch; what it draws by is compiled first, which takes minutes."""
    graph = mag_sized(setting)

    def peer() -> Worker:
        return setting.peer("pyg_sampling", graph, python=setting.set_up_apart("pyg"))

    return [_rooted(setting, graph, "torch_geometric's NeighborLoader", 5, peer, 64 if setting.quick else 256)]


def _rooted(
    setting: Setting, graph: Path, name: str, target: float, start: Callable[[], Worker], subgraphs: int
) -> Row:
    """Rooted subgraphs of a peer and ours, in rounds of equal size."""
    what = f"sampling, MAG's sizes{' / 50' if setting.quick else ''}, rooted subgraphs"
    row = Row(what, name, "subgraphs/CPU s", setting.target(target))
    many = 256 if setting.quick else 2048
    try:
        with setting.own("sampling", graph) as own, start() as peer:
            own.ask(subgraphs=64, seed=1)
            peer.ask(subgraphs=128, seed=1)
            results = alternate(
                {"own": lambda: own.ask(subgraphs=many, seed=2), "peer": lambda: peer.ask(subgraphs=subgraphs, seed=2)},
                setting.rounds + 2,
            )
    except PeerFailed as error:
        return replace(row, note=f"no figure of the peer: {error}")
    ours, theirs = (median([each["subgraphs"] / each["cpu_s"] for each in results[side]]) for side in ("own", "peer"))
    edges = [results[side][0]["edges"] / results[side][0]["subgraphs"] for side in ("own", "peer")]
    setting.say(f"{row.name}: {ours:.3g} a CPU second, {row.peer_name} {theirs:.3g}")
    note = f"{edges[0]:.0f} edges a subgraph of ours, {edges[1]:.0f} of the peer's; one thread each"
    return replace(row, ours=ours, peer=theirs, cpu=(1 / ours, 1 / theirs), note=note)


ROWS: dict[str, Callable[[Setting], list[Row]]] = {
    "sampling": sampling, "sampling-tfgnn": sampling_tfgnn, "sampling-pyg": sampling_pyg,
}  # fmt: skip


def mag_sized(setting: Setting) -> Path:
    """A heterograph dataset with random edges, more at some nodes than at others, and its spec."""
    share = 50 if setting.quick else 1
    folder = kept_folder(setting.data, "mag-sized", key((__name__,), share=share))
    if (folder / "manifest.json").exists():
        return folder
    setting.say("making a heterograph of MAG's sizes")
    rng = np.random.default_rng(1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "mag-sized.pbtxt").write_text(SPEC)
    output = DatasetWriter(str(folder), "d" * 32)
    nodes = [NodeSet(name, count // share, ()) for name, count in sorted(NODES.items())]
    counts = {each.name: each.count for each in nodes}
    edges = [EdgeSet(name, a, b, m // share, None, ()) for name, (a, b, m) in sorted(EDGES.items())]
    for number, each in enumerate(nodes):
        write_ids(output, number, pa.array([f"{n:08}" for n in range(each.count)], pa.large_string()))
    for number, each in enumerate(edges):
        ends = []
        for end, power in ((each.source, 1.5), (each.target, 2.5)):
            order = rng.permutation(counts[end])
            ends.append(order[(counts[end] * rng.random(each.count) ** power).astype(np.int64)])
        order = np.lexsort(ends[::-1])
        indptr = np.concatenate([[0], np.cumsum(np.bincount(ends[0], minlength=counts[each.source]))])
        write_rows(output, number, indptr.astype(np.int64), ends[1][order].astype(np.int32))
    write_graph_file(output, nodes, edges)
    measured = Measurement(runtime_s=0, cpu_s=0, peak_memory_bytes=0, rows=0, bytes=0)
    output.commit(
        stage="heterograph", version="1", params={}, inputs={}, stats=stats_of(nodes, edges), measured=measured,
        software={},
    )  # fmt: skip
    return folder
