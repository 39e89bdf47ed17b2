"""Graph servers of full-graph training: the weights of one process, the bytes of ghosts, and a server that is lost."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.train_full.timeline import faults, read_timeline
from tests.infra.engines.test_workers import members_of
from tests.tasks.gnn_graphs import NODES, one_kind
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

GIVEN = {"hidden": 16, "heads": 4, "patience": 0, "intervals": 5, "epochs": 4, "layers": 3}
SAME = ("model.safetensors", "history.parquet", "network.json", "splits.npy")


def directed(folder: Path) -> Dataset:
    """A graph with arcs of one direction, of which most senders are few; half of the features are 0 here and there."""
    rng, names = np.random.default_rng(6), [f"n{i:02}" for i in range(NODES)]
    pairs = sorted({(names[int(u * u / NODES)], names[int(v)]) for u, v in rng.integers(0, NODES, (500, 2)) if u != v})
    given = {
        "features": rng.normal(size=(NODES, 7)).astype(np.float32), "label": [f"k{i % 3}" for i in range(NODES)],
        "split": [("train", "validation", "test")[i % 7 % 3] for i in range(NODES)],
    }  # fmt: skip
    return write_heterograph(folder, {"node": Nodes(names, given)}, {"edge": Edges("node", "node", pairs)})


@pytest.fixture(scope="module", params=["symmetric", "directed"])
def inputs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp(request.param)
    graph = (one_kind if request.param == "symmetric" else directed)(folder / "graph")
    given = {"graph": str(graph.location.local_path)}
    sums = run_stage(load_stage("aggregate"), {"form": "gcn"}, given, folder / "sums")
    return given | {"sums": str(sums.location.local_path)}


@pytest.fixture(scope="module")
def symmetric(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("one")
    graph = one_kind(folder / "graph")
    given = {"graph": str(graph.location.local_path)}
    sums = run_stage(load_stage("aggregate"), {"form": "gcn"}, given, folder / "sums")
    return given | {"sums": str(sums.location.local_path)}


def trained(
    inputs: dict[str, str], folder: Path, count: int, cpu: int = 1, more: dict[str, Any] | None = None, **params: Any
) -> tuple[Dataset, str]:  # fmt: skip
    """Train with graph servers, or in one process if their count is 0."""
    given = inputs if params.get("model", "gcn") == "gcn" else {"graph": inputs["graph"]}
    workers = {"graph": {"count": count, "cpu": cpu, "memory": "1Gi"}} if count else {}
    resources = Resources.model_validate({"cpu": cpu, "memory": "4Gi", "workers": workers | (more or {}) or None})
    progress = Progress("train_full", stream=(log := io.StringIO()))
    engine = "workers" if resources.workers else "in-process"
    made = execute(load_stage("train_full"), GIVEN | params, given, str(folder), resources, progress, engine)
    return made.dataset, log.getvalue()


def rows_of(dataset: Dataset) -> CsrRows:
    graph = HeteroGraph.open(dataset)
    return graph.rows(next(iter(graph.edge_sets)))


def ghosts_of(rows: CsrRows, bounds: list[int], back: bool) -> int:
    """Pairs of a server and a vertex of another one whose row it reads, by brute force."""
    owner, found = np.searchsorted(bounds, np.arange(bounds[-1]), "right") - 1, set()
    for receiver in range(bounds[-1]):
        for sender in rows.indices[rows.indptr[receiver] : rows.indptr[receiver + 1]].tolist():
            reader, read = (sender, receiver) if back else (receiver, sender)
            if owner[reader] != owner[read]:
                found.add((int(owner[reader]), read))
    return len(found)


@pytest.mark.parametrize(
    ("model", "precision", "servers"),
    [("gcn", "float32", (1, 2, 3)), ("gat", "float32", (2, 3)), ("gat", "bfloat16", (2,))],
)
def test_servers_change_no_bit_and_send_ghosts_alone(inputs, tmp_path, model, precision, servers):
    """Rows of ghosts in each epoch: of both ways in training, and of the way forward in validation."""
    given = {"model": model, "precision": precision}
    alone, _ = trained(inputs, tmp_path / "alone", 0, **given)
    rows = rows_of(Dataset.open(Location.of(inputs["graph"])))
    classes = int(str(alone.stats["classes"]))
    for count in servers:
        found, log = trained(inputs, tmp_path / str(count), count, cpu=1 + count % 2, **given)
        assert all(found.local(name).read_bytes() == alone.local(name).read_bytes() for name in SAME), log
        timeline = read_timeline(found.local("timeline.parquet"))
        assert not faults(timeline, 0)
        assert len(timeline) == len(read_timeline(alone.local("timeline.parquet")))
        bounds = [NODES * (5 * each // count) // 5 for each in range(count + 1)]
        ahead, behind = (ghosts_of(rows, bounds, back) for back in (False, True))
        assert found.stats["graph.ghosts"] == ahead
        size, widths = (2 if precision == "bfloat16" else 4), [16, 16, classes][model == "gcn" :]
        heads = [4, 4, 1] if model == "gat" else [0, 0]
        numbers = [size * width + 4 * each for width, each in zip(widths, heads, strict=True)]
        back = [size * width + 12 * each for width, each in zip(widths, heads, strict=True)]
        wanted = GIVEN["epochs"] * (2 * ahead * sum(numbers) + behind * sum(back))
        assert found.stats["graph.scatter_bytes"] == wanted
        weights = int(str(found.stats["parameters"])) * 4
        assert int(str(found.stats["graph.gradient_bytes"])) // GIVEN["epochs"] // weights == 2 * (count - 1)
    assert not members_of(os.getpid())
