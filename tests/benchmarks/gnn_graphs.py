"""Graphs to train on, as arrays that both sides read, kept for the code that made them.

`graph.json` names node sets with their sizes, the set that is classified, and relations in the order of their numbers,
each with the sets of its receivers and senders. Other files: `indptr-<number>.npy` and `indices-<number>.npy`, the
senders of each receiver; `features-<set>.npy`, float32 [nodes, values]; `labels.npy`, int64, and `splits.npy`, int8, of
the classified set: 0 for training, 1 for validation, 2 for test, -1 for none.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import scipy.sparse
from numpy.typing import NDArray

from examples.debian_archive import LISTS, convert_apt
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.generators.communities import EDGES, FEATURES, LABELS, generate_communities
from superworkflow.tasks.lib.gnn.features import features_of
from superworkflow.tasks.lib.gnn.objective.labels import targets_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.benchmarks.code import kept_folder, key, stage_module
from tests.benchmarks.graphs import COMPLETE, short
from tests.benchmarks.setting import Setting
from tests.benchmarks.stages import run_stage

GRAPH = "graph.json"
WIDTH = 100
_TRAIN, _VALIDATION = 0.5, 0.55
"""Of the nodes in a random order, where those to train on and to validate on end."""
_SECTION, _SHARES = "package.section", (0.1, 0.1)
"""What is learned of Debian's packages, and of each section the shares to train and to validate on."""


@dataclass(frozen=True)
class GnnGraph:
    """A graph in a folder; `name` is for people, `batch` is how many targets a step has."""

    name: str
    folder: Path
    batch: int

    @cached_property
    def splits(self) -> NDArray[np.int8]:
        return np.asarray(np.load(self.folder / "splits.npy"))

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-int((self.splits == 0).sum()) // self.batch)

    def some(self, split: int, count: int) -> list[int]:
        """`count` random nodes of a split, ascending."""
        nodes = np.flatnonzero(self.splits == split)
        return sorted(np.random.default_rng(1).choice(nodes, min(count, len(nodes)), replace=False).tolist())


def communities(setting: Setting, nodes: int, edges: int, batch: int) -> GnnGraph:
    """A power law with communities, without direction."""
    name = f"communities-{nodes // 1000}k"
    folder = kept_folder(setting.data, name, key((__name__,), nodes=nodes, edges=edges))
    graph = GnnGraph(f"communities {short(nodes)}/{short(2 * edges)}", folder, batch)
    if (folder / COMPLETE).exists():
        return graph
    setting.say(f"making the graph: {graph.name}")
    raw = generate_communities(nodes, edges, _empty(folder) / "raw", seed=1, width=WIDTH)
    ends = pq.read_table(raw / EDGES)
    source, target = (ends[column].to_numpy() for column in ("source", "target"))
    ones = np.ones(len(source), np.int8)
    half = scipy.sparse.coo_array((ones, (source, target)), shape=(nodes, nodes)).tocsr()
    matrix = (half + half.T).tocsr()
    matrix.sort_indices()
    table = pq.read_table(raw / FEATURES)
    features = np.empty((nodes, WIDTH), np.float32)
    lists = table["features"].combine_chunks()
    features[table["node"].to_numpy()] = lists.flatten().to_numpy().reshape(nodes, -1)
    labelled = pacsv.read_csv(raw / LABELS)
    labels = np.zeros(nodes, np.int64)
    labels[labelled["node"].to_numpy()] = labelled["label"].to_numpy()
    splits = np.full(nodes, 2, np.int8)
    order = np.random.default_rng(1).permutation(nodes)
    splits[order[: int(_TRAIN * nodes)]] = 0
    splits[order[int(_TRAIN * nodes) : int(_VALIDATION * nodes)]] = 1
    shutil.rmtree(raw)
    rows = {("edge", "node", "node"): (matrix.indptr, matrix.indices)}
    _write(folder, {"node": nodes}, "node", rows, {"node": features}, {"labels": labels, "splits": splits})
    return graph


METHODS = ("metis", "contiguous")
PARTS = 16


def communities_in_parts(setting: Setting, nodes: int, edges: int) -> Path:
    """The same graph as the stages write it: datasets `graph`, `means`, and for each of `METHODS` `shards-<method>`."""
    name, made_by = f"parts-{nodes // 1000}k", ("heterograph", "partition", "shard", "aggregate")
    modules = (__name__, *map(stage_module, made_by))
    folder = kept_folder(setting.data, name, key(modules, nodes=nodes, edges=edges))
    if (folder / COMPLETE).exists():
        return folder
    setting.say(f"making the graph in parts: communities {short(nodes)}/{short(2 * edges)}")
    raw = generate_communities(nodes, edges, _empty(folder) / "raw", seed=1, width=WIDTH)
    labels = pacsv.read_csv(raw / LABELS)
    splits = np.full(nodes, "test", object)
    splits[np.random.default_rng(1).permutation(nodes)[: int(_TRAIN * nodes)]] = "train"
    given = labels.append_column("split", pa.array(splits[labels["node"].to_numpy()].astype(str)))
    pacsv.write_csv(given, raw / LABELS, pacsv.WriteOptions(quoting_style="none"))
    sources = {"edges": raw / EDGES, "features": raw / FEATURES, "labels": raw / LABELS}
    graph = run_stage(setting, "heterograph", sources, folder / "graph").output
    for method in METHODS:
        params = {"parts": PARTS, "method": method}
        parts = run_stage(setting, "partition", {"graph": graph}, folder / f"parts-{method}", params).output
        run_stage(setting, "shard", {"graph": graph, "partition": parts}, folder / f"shards-{method}")
    run_stage(setting, "aggregate", {"graph": graph}, folder / "means")
    shutil.rmtree(raw)
    (folder / COMPLETE).touch()
    return folder


def bare_communities(setting: Setting, nodes: int, degree: int, batch: int) -> GnnGraph:
    """Communities too large for features on disk: callers make features up."""
    name = f"bare-{nodes // 1000}k"
    folder = kept_folder(setting.data, name, key((__name__, stage_module("index")), nodes=nodes, degree=degree))
    graph = GnnGraph(f"communities {short(nodes)}/{short(nodes * degree)}", folder, batch)
    if (folder / COMPLETE).exists():
        return graph
    setting.say(f"making the graph: {graph.name}")
    raw = generate_communities(nodes, nodes * degree // 2, _empty(folder) / "raw", seed=1, width=1)
    index = run_stage(setting, "index", {"edges": raw / EDGES}, folder / "index").output
    rows = {("edge", "node", "node"): (np.load(index / "indptr.npy"), np.load(index / "indices.npy"))}
    shutil.rmtree(raw)
    shutil.rmtree(index)
    splits = np.where(np.random.default_rng(1).random(nodes) < _TRAIN, 0, 2).astype(np.int8)
    _write(folder, {"node": nodes}, "node", rows, {}, {"labels": np.arange(nodes) % 2, "splits": splits})
    return graph


def debian(setting: Setting, batch: int) -> GnnGraph | None:
    """Packages of the Debian system that this runs on, as the example makes them; None where there are no lists."""
    lists = sorted(Path(LISTS).glob("*_Packages*"))
    if not lists:
        return None
    made = key((__name__, stage_module("heterograph")), lists=[[each.name, each.stat().st_size] for each in lists])
    folder = kept_folder(setting.data, "debian", made)
    if not (folder / COMPLETE).exists():
        setting.say("making the graph: Debian's packages")
        convert_apt(Path(LISTS), _empty(folder) / "tables")
        whole = run_stage(setting, "heterograph", {"graph": folder / "tables"}, folder / "whole").output
        graph = HeteroGraph.open(Dataset.open(str(whole)))
        targets = targets_of(graph, _SECTION, _SHARES, 42)
        rows = {(each.name, each.source, each.target): graph.rows(each.name) for each in graph.edge_sets.values()}
        features = {name: features_of(graph, name) for name in graph.node_sets}
        _write(
            folder, {name: each.count for name, each in graph.node_sets.items()}, targets.node_set, rows,
            {name: values for name, values in features.items() if values is not None},
            {"labels": targets.classes, "splits": targets.splits},
        )  # fmt: skip
        shutil.rmtree(folder / "tables")
        shutil.rmtree(whole)
    facts = json.loads((folder / GRAPH).read_text())
    edges = sum(len(np.load(path, mmap_mode="r")) for path in folder.glob("indices-*.npy"))
    return GnnGraph(f"Debian {short(sum(facts['nodes'].values()))}/{short(edges)}", folder, batch)


def _write(
    folder: Path, nodes: Mapping[str, int], target: str,
    rows: Mapping[tuple[str, str, str], tuple[NDArray[Any], NDArray[Any]]], features: Mapping[str, NDArray[Any]],
    others: Mapping[str, NDArray[Any]],
) -> None:  # fmt: skip
    """Write all that the module says; relations are name, receivers and senders."""
    arrays = dict(others)
    for number, (indptr, indices) in enumerate(rows.values()):
        arrays |= {f"indptr-{number}": indptr.astype(np.int64), f"indices-{number}": indices.astype(np.int32)}
    arrays |= {f"features-{name}": values.astype(np.float32) for name, values in features.items()}
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    (folder / GRAPH).write_text(json.dumps({"nodes": nodes, "target": target, "relations": [*map(list, rows)]}))
    (folder / COMPLETE).touch()


def _empty(folder: Path) -> Path:
    """Make the folder, without what an attempt that did not end left in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
