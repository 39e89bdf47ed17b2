"""`make oracles`: every check against others' software, one after the other; the first that fails ends it.

python -m tests.oracles [movielens] [ogb] [graphs] [tfgnn]
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.generators.mag import generate_mag
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.importers.ogb import convert_ogb
from tests.oracles.environments import run_in
from tests.oracles.movielens import check_movielens
from tests.oracles.toy import write_toy
from tests.tasks.planetoid import write_planetoid
from tests.tasks.sampling import random_graph

HOPS = """
seed_op { op_name: "seed" node_set_name: "n" }
sampling_ops { op_name: "one" input_op_names: "seed" edge_set_name: "e" sample_size: 1000 strategy: RANDOM_UNIFORM }
sampling_ops { op_name: "two" input_op_names: "one" edge_set_name: "e" sample_size: 1000 strategy: RANDOM_UNIFORM }
"""


def make(stage: str, params: dict[str, Any], output: Path, **inputs: Path) -> Path:
    """Run one stage; the folder of its dataset."""
    given = {name: str(path) for name, path in inputs.items()}
    resources = Resources(cpu=2, memory=4 << 30)
    execute(load_stage(stage), params, given, str(output), resources, Progress(stage, stream=io.StringIO()))
    return output


def records_of(graph: Path, spec: Path, folder: Path, sample: dict[str, Any], **records: Any) -> Path:
    """The records of a graph."""
    typed = make("heterograph", {}, folder / "heterograph", graph=graph)
    subgraphs = make("sample", sample, folder / "sample", graph=typed, spec=spec)
    return make("records", records, folder / "records", graph=typed, subgraphs=subgraphs)


def check_tfgnn(folder: Path) -> None:
    """Records of the toy graph and of a small MAG, by both aggregations, are read; the toy's are TF-GNN's own."""
    toy, mag = write_toy(folder / "toy"), generate_mag(0.001, folder / "mag", 5)
    for aggregation in ("edge", "node"):
        made = records_of(toy, toy / "spec.pbtxt", folder / f"toy-{aggregation}", {"aggregation": aggregation})
        run_in("tfgnn", "in_tfgnn_records", made)
        run_in("tfgnn", "in_tfgnn_sampler", toy, toy / "spec.pbtxt", made, aggregation)
    run_in("tfgnn", "in_tfgnn_records", records_of(mag, mag / "spec.pbtxt", folder / "mag-edge", {}))
    params = {"aggregation": "node", "repeats": 2}
    made = records_of(mag, mag / "spec.pbtxt", folder / "mag-node", params, compression="gzip", shards=3)
    run_in("tfgnn", "in_tfgnn_records", made)


def check_ogb(folder: Path) -> None:
    """OGB's own reader finds in a raw folder what we find in it."""
    raw, rng = folder / "ogb" / "raw", np.random.default_rng(2)
    counts = {"author": 40, "paper": 70}

    def packed(name: str, rows: Any) -> None:
        path = raw / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress("".join(",".join(map(str, row)) + "\n" for row in rows).encode()))

    packed("num-node-dict.csv.gz", [list(counts), list(counts.values())])
    packed("nodetype-has-feat.csv.gz", [list(counts), [False, True]])
    packed("triplet-type-list.csv.gz", [["author", "writes", "paper"], ["paper", "cites", "paper"]])
    packed("node-feat/paper/node-feat.csv.gz", rng.normal(size=(70, 5)).round(4).tolist())
    packed("node-feat/paper/node_year.csv.gz", rng.integers(2010, 2020, (70, 1)).tolist())
    for source, name in (("author", "writes"), ("paper", "cites")):
        pairs = rng.integers(0, [counts[source], 70], (200, 2))
        where = f"relations/{source}___{name}___paper"
        packed(f"{where}/edge.csv.gz", pairs.tolist())
        packed(f"{where}/num-edge-list.csv.gz", [[200]])
        packed(f"{where}/edge_reltype.csv.gz", [[0]] * 200)
    convert_ogb(raw, folder / "converted")
    run_in("ogb", "in_ogb_reads", raw, folder / "theirs.npz")
    theirs = np.load(folder / "theirs.npz")
    typed = make("heterograph", {}, folder / "ogb-heterograph", graph=folder / "converted")
    graph = HeteroGraph.open(Dataset.open(typed))
    order = np.array(graph.ids("paper").to_pylist(), np.int64)
    assert (graph.node_feature("paper", "feat") == theirs["feat/paper"][order]).all()
    assert (graph.node_feature("paper", "year") == theirs["year/paper"].reshape(-1)[order]).all()
    for edge_set, edges in graph.edge_sets.items():
        rows, names = graph.rows(edge_set), [graph.ids(end).to_pylist() for end in (edges.source, edges.target)]
        owners = np.repeat(np.arange(len(names[0])), np.diff(rows.indptr))
        found = sorted((int(names[0][s]), int(names[1][t])) for s, t in zip(owners, rows.indices, strict=True))
        assert found == sorted(map(tuple, theirs[f"edges/{edges.source}/{edge_set}/{edges.target}"].T.tolist()))
    print("OGB's reader finds the same features and edges in a raw folder")


def check_graphs(folder: Path) -> None:
    """Whole neighbourhoods are DGL's and networkx's; DGL's draws; PyG's data, loader, and a GCN of its own."""
    spec = folder / "hops.pbtxt"
    spec.parent.mkdir(parents=True)
    spec.write_text(HOPS)
    plain = random_graph(np.random.default_rng(7), {"n": 60}, {"e": ("n", "n")}, 150, parallel=True)
    plain.write(folder / "plain")
    sampled = make("sample", {"aggregation": "node"}, folder / "hops", graph=folder / "plain", spec=spec)
    run_in("graphs", "in_dgl", folder / "plain", sampled)
    cora: list[Path] = []
    if (data := os.environ.get("SUPERWORKFLOW_TEST_DATA")) is not None:
        tables = write_planetoid(Path(data) / "planetoid", "cora", folder / "cora")
        cora = [make("heterograph", {}, folder / "typed", graph=tables), tables / "spec.pbtxt", tables / "seeds.csv"]
    else:
        print("SUPERWORKFLOW_TEST_DATA names no folder with Planetoid's graphs: no GCN is trained")
    run_in("graphs", "in_pyg", *cora)
    run_in("graphs", "in_pyg_gnn", folder / "gnn")
    run_in("graphs", "in_pyg_full", folder / "full")


CHECKS = {"movielens": check_movielens, "ogb": check_ogb, "graphs": check_graphs, "tfgnn": check_tfgnn}

if __name__ == "__main__":
    for name in sys.argv[1:] or CHECKS:
        with tempfile.TemporaryDirectory() as made:
            CHECKS[name](Path(made) / name)
