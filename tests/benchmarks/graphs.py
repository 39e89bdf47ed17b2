"""The graphs that both sides work on: files for the peers, index datasets for us. Kept for the code that made them.

Every graph is one file `edges.csv` with the columns source, target, weight: each undirected edge once, vertices as
numbers, weights uniform in [0.01, 1). So all sides walk on the same graph, with or without its weights.
"""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse
from numpy.typing import NDArray

from superworkflow.tasks.lib.generators.edge_lists import generate
from tests.benchmarks.code import kept_folder, key, stage_module
from tests.benchmarks.setting import Setting, blogcatalog_file
from tests.benchmarks.stages import MANIFEST, run_stage

COMPLETE = "complete"


@dataclass(frozen=True)
class GraphFiles:
    """A graph in the forms that are needed.

    Args:
        name: for people, with what it is.
        folder: of its files.
        real: false for a stand-in, whose figures compare with nothing published and have no target.
    """

    name: str
    folder: Path
    real: bool = True

    @property
    def edges(self) -> Path:
        """`source,target,weight` with a header."""
        return self.folder / "edges.csv"

    @property
    def tsv(self) -> Path:
        """`source<tab>target`, without a header."""
        return self.folder / "edges.tsv"

    @property
    def labels(self) -> Path:
        """`node,label` with a header, where the graph has labels."""
        return self.folder / "labels.csv"

    def index(self, weighted: bool) -> Path:
        """The index dataset."""
        return self.folder / ("index-weighted" if weighted else "index")

    def rows(self, weighted: bool) -> Path:
        """The index dataset's arrays as the `.npz` that PecanPy reads."""
        return self.folder / ("weighted.npz" if weighted else "unweighted.npz")


def power_law(setting: Setting) -> GraphFiles:
    """Chung-Lu with exponent 2.5: 1M vertices, 10M edges (20M directed); a twentieth of that when quick."""
    vertices, edges = (50_000, 500_000) if setting.quick else (1_000_000, 10_000_000)
    folder = kept_folder(setting.data, "power-law", key(_made_by("index"), vertices=vertices, edges=edges))
    graph = GraphFiles(f"power law {short(vertices)}/{short(2 * edges)}", folder)
    if not (graph.folder / COMPLETE).exists():
        setting.say(f"making the graph: {graph.name}")
        _empty(graph.folder)
        raw = generate("chung-lu", vertices, edges, graph.folder / "raw.csv", seed=1)
        index = run_stage(setting, "index", {"edges": raw}, graph.folder / "raw").output
        raw.unlink()
        _write(graph, np.load(index / "indptr.npy"), np.load(index / "indices.npy"))
        _index(setting, graph)
    return graph


def blogcatalog(setting: Setting) -> GraphFiles:
    """BlogCatalog with its labels, or a planted partition of its size where the file is not there."""
    source = blogcatalog_file()
    vertices, edges, communities = 10_312, 333_983, 39
    if source:
        made = key(_made_by("index"), source=hashlib.sha256(source.read_bytes()).hexdigest())
        graph = GraphFiles("BlogCatalog", kept_folder(setting.data, "blogcatalog", made))
    else:
        made = key(_made_by("index"), vertices=vertices, edges=edges, communities=communities)
        name = f"planted partition {short(vertices)}/{short(2 * edges)}"
        graph = GraphFiles(name, kept_folder(setting.data, "planted", made), real=False)
    if not (graph.folder / COMPLETE).exists():
        setting.say(f"making the graph: {graph.name}")
        _empty(graph.folder)
        if source:
            content = scipy.io.loadmat(source)
            adjacency, groups = content["network"].tocsr(), content["group"].tocoo()
        else:
            adjacency, groups = planted_partition(vertices, edges, communities)
        _write_csv(graph.labels, {"node": groups.row.astype(np.int64), "label": groups.col.astype(np.int64)})
        _write(graph, adjacency.indptr.astype(np.int64), adjacency.indices)
        _index(setting, graph)
    return graph


def labelled_edges(setting: Setting) -> tuple[Path, Path, int, int]:
    """An edge list with labels of strings, its prefix of a tenth, and the rows of both: 20M, 1M when quick."""
    vertices, rows = (50_000, 1_000_000) if setting.quick else (1_000_000, 20_000_000)
    folder = kept_folder(setting.data, "labelled", key(_made_by(), vertices=vertices, rows=rows))
    path, prefix = folder / "all.csv", folder / "prefix.csv"
    if not prefix.exists():
        setting.say(f"making an edge list of {short(rows)} rows with string labels")
        _empty(folder)
        generate("chung-lu", vertices, rows, path, seed=2, prefix="user")
        with path.open("rb") as source, prefix.with_suffix(".part").open("wb") as target:
            for _ in range(rows // 10 + 1):
                target.write(source.readline())
        prefix.with_suffix(".part").rename(prefix)
    return path, prefix, rows, rows // 10


def _made_by(*stages: str) -> tuple[str, ...]:
    """Modules of the code that makes a graph with these stages."""
    return (__name__, *map(stage_module, stages))


def _empty(folder: Path) -> None:
    """Make the folder, without what an attempt that did not end left in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def planted_partition(vertices: int, edges: int, groups: int) -> tuple[scipy.sparse.csr_array, scipy.sparse.coo_array]:
    """Communities with half of the edges inside them; each vertex in one, and a tenth in a second one."""
    random = np.random.default_rng(3)
    member = random.integers(0, groups, vertices)
    order = np.argsort(member, kind="stable")
    start = np.searchsorted(member[order], np.arange(groups + 1))
    ends = random.zipf(2.0, 6 * edges) % vertices
    ends = random.permutation(vertices)[ends]
    source, target = ends[: 3 * edges], ends[3 * edges :].copy()
    inside = random.random(len(source)) < 0.5
    group = member[source[inside]]
    offset = (random.random(len(group)) * (start[group + 1] - start[group])).astype(np.int64)
    target[inside] = order[start[group] + offset]
    low, high = np.minimum(source, target), np.maximum(source, target)
    pairs = np.unique(low[low < high] * vertices + high[low < high])
    pairs = random.permutation(pairs)[:edges]
    ring = np.arange(vertices)  # no vertex without an edge
    low = np.concatenate([pairs // vertices, ring])
    high = np.concatenate([pairs % vertices, (ring + 1) % vertices])
    adjacency = scipy.sparse.coo_array((np.ones(len(low)), (low, high)), shape=(vertices, vertices)).tocsr()
    adjacency = (adjacency + adjacency.T).tocsr()
    adjacency.sort_indices()
    second = random.choice(vertices, vertices // 10, replace=False)
    label = scipy.sparse.coo_array(
        (
            np.ones(vertices + len(second)),
            (np.concatenate([ring, second]), np.concatenate([member, (member[second] + 1) % groups])),
        ),
        shape=(vertices, groups),
    )
    return adjacency, label


def _write(graph: GraphFiles, indptr: NDArray[np.int64], indices: NDArray[np.int32]) -> None:
    """Each edge of symmetric rows once, with a weight."""
    source = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    once = source < indices
    weight = np.random.default_rng(4).uniform(0.01, 1.0, int(once.sum())).astype(np.float32)
    columns = {"source": source[once], "target": indices[once].astype(np.int64)}
    _write_csv(graph.edges, {**columns, "weight": weight})
    _write_csv(graph.tsv, columns, "\t", header=False)


def _write_csv(path: Path, columns: dict[str, NDArray[Any]], delimiter: str = ",", header: bool = True) -> None:
    """Names of columns stand without quotes, which not every peer reads."""
    with path.open("wb") as stream:
        if header:
            stream.write(delimiter.join(columns).encode() + b"\n")
        pacsv.write_csv(pa.table(columns), stream, pacsv.WriteOptions(include_header=False, delimiter=delimiter))


def _index(setting: Setting, graph: GraphFiles) -> None:
    for weighted in (False, True):
        folder = graph.index(weighted)
        params = {"weighted": weighted} | ({"weight": "weight"} if weighted else {})
        run_stage(setting, "index", {"edges": graph.edges}, folder, params)
        assert (folder / MANIFEST).exists()
        indices = np.load(folder / "indices.npy")
        names = pq.read_table(folder / "vertices.parquet", columns=["node"])["node"].to_pylist()
        np.savez(
            graph.rows(weighted), IDs=np.array(names, dtype="U"),
            data=np.load(folder / "weights.npy") if weighted else np.ones(len(indices), np.float32),
            indptr=np.load(folder / "indptr.npy").astype(np.uint32), indices=indices.astype(np.uint32),
        )  # fmt: skip
    (graph.folder / COMPLETE).touch()


def short(count: int) -> str:
    """A number of vertices or edges for people, such as 2M or 170k."""
    return f"{count / 1e6:.3g}M" if count >= 1_000_000 else f"{count / 1e3:.3g}k"
