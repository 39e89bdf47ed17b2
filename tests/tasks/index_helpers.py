"""Run the index stage on a small file, and read what it wrote."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from superworkflow.infra.contract.stage import Progress, Resources, Stage
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.index import STAGE


@dataclass
class Graph:
    dataset: Dataset
    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None
    labels: list[str]
    degree: np.ndarray

    @property
    def stats(self) -> dict[str, Any]:
        return dict(self.dataset.stats)

    def matrix(self) -> sp.csr_matrix:
        data = np.ones(len(self.indices), np.float32) if self.weights is None else self.weights
        n = len(self.labels)
        return sp.csr_matrix((data, self.indices, self.indptr), shape=(n, n))

    def arcs(self) -> dict[tuple[str, str], float]:
        """Weight of each arc by its labels."""
        matrix = self.matrix().tocoo()
        return {
            (self.labels[u], self.labels[v]): float(w)
            for u, v, w in zip(matrix.row, matrix.col, matrix.data, strict=True)
        }


def run_stage(
    stage: Stage, params: dict, inputs: dict, folder: Path, cpu: int = 2, log: io.StringIO | None = None
) -> Dataset:
    progress = Progress(stage.name, stream=log or io.StringIO())
    return execute(stage, params, inputs, str(folder), Resources(cpu=cpu, memory=4 << 30), progress).dataset


def read(dataset: Dataset) -> Graph:
    table = dataset.table("vertices.parquet")
    return Graph(
        dataset,
        dataset.array("indptr.npy"),
        dataset.array("indices.npy"),
        dataset.array("weights.npy") if "weights.npy" in dataset else None,
        table.column("node").to_pylist(),
        table.column("degree").to_numpy(),
    )


def run_index(
    path: Path, engine: str = "compiled", *, cpu: int = 2, log: io.StringIO | None = None, **params: Any
) -> Graph:
    count = len(list(path.parent.glob("index-*")))
    folder = path.parent / f"index-{count}"
    return read(run_stage(STAGE, {"engine": engine, **params}, {"edges": str(path)}, folder, cpu, log))
