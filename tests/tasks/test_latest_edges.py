"""Training on each node's latest edges."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.train import STAGE
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

SMALL: dict[str, Any] = {"hidden": 16, "batch": 8, "epochs": 4, "layers": 2, "fanouts": "3,3", "dropout": 0.0}


def made(folder: Path, latest: int | None = None) -> Dataset:
    """A random graph, or one that has each node's latest edges alone."""
    rng = np.random.default_rng(5)
    names = [f"n{i:02}" for i in range(40)]
    rows = sorted({(names[u], names[v]) for u, v in rng.integers(0, 40, (400, 2)) if u != v})
    given = rng.integers(0, 9, len(rows))
    kept = list(range(len(rows)))
    if latest is not None:
        of_source = [[row for row in kept if rows[row][0] == name] for name in names]
        kept = sorted(row for each in of_source for row in sorted(each, key=lambda row: (given[row], row))[-latest:])
    nodes = {"label": [f"k{i % 3}" for i in range(40)], "features": rng.normal(size=(40, 4)).astype(np.float32)}
    edges = Edges("node", "node", [rows[row] for row in kept], {"timestamp": given[kept]})
    return write_heterograph(folder, {"node": Nodes(names, nodes)}, {"edge": edges})


def trained(graph: Dataset, folder: Path, **params: Any) -> Dataset:
    return run_stage(STAGE, SMALL | params, {"graph": graph.uri}, folder)


def test_training_equals_that_on_the_latest_edges_alone(tmp_path: Path) -> None:
    whole, pruned = made(tmp_path / "whole"), made(tmp_path / "pruned", latest=3)
    assert len(pruned.array("edges-0-indices.npy")) < len(whole.array("edges-0-indices.npy")) // 2
    latest = trained(whole, tmp_path / "latest", sampler="latest")
    wanted = trained(pruned, tmp_path / "wanted", sampler="neighbor")
    assert latest.table("losses.parquet") == wanted.table("losses.parquet")
    drawn = trained(whole, tmp_path / "drawn", sampler="neighbor")
    assert latest.table("losses.parquet") != drawn.table("losses.parquet")


def test_refusals(tmp_path: Path) -> None:
    graph = made(tmp_path / "graph")
    with pytest.raises(UserError, match=r"train.time: edges have no such feature .*'at'.*timestamp"):
        trained(graph, tmp_path / "name", sampler="latest", time="at")
    with pytest.raises(UserError, match=r"latest takes edges by time, not by weight"):
        trained(graph, tmp_path / "both", sampler="latest", weight="timestamp", weighted="draws")
