"""Small real inputs of the stages prepare and embed: a graph, its walks, and how they are made."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks import embed, prepare
from tests.datasets import commit


def write_graph(folder: Path, labels: Sequence[str]) -> Dataset:
    """An index dataset with labels only: these stages read nothing else of it."""
    writer = DatasetWriter(folder)
    writer.table("vertices.parquet", pa.table({"node": list(labels)}))
    return commit(writer, "index", {"name": f"graph-{folder.name}"}, {"vertices": len(labels)}, len(labels))


def write_walks(folder: Path, walks: np.ndarray, vertices: int, shards: int = 1) -> Dataset:
    """A walk dataset of the given walks, in some shards."""
    writer = DatasetWriter(folder)
    for i, part in enumerate(np.array_split(walks.astype(np.int32), shards)):
        writer.array(f"walks-{i:05d}.npy", part)
    stats: dict[str, Stat] = {"walks": len(walks), "tokens": int((walks >= 0).sum()), "vertices": vertices}
    return commit(writer, "walk", {"name": f"walks-{folder.name}"}, stats, len(walks))


def community_walks(communities: int, size: int, walks: int, length: int, leave: float, seed: int = 0) -> np.ndarray:
    """Walks on dense communities; a step leaves its community with probability `leave`."""
    rng = np.random.default_rng(seed)
    result = np.empty((walks, length), np.int32)
    community = np.arange(walks) % communities
    for t in range(length):
        result[:, t] = community * size + rng.integers(size, size=walks)
        moves = rng.random(walks) < leave
        community = np.where(moves, rng.integers(communities, size=walks), community)
    return result


class Inputs:
    """A folder with graph, walks and vocabulary, and the stage run on them."""

    def __init__(self, folder: Path, walks: np.ndarray, labels: Sequence[str], shards: int = 1, **prepared: object):
        self.folder = folder
        self.graph = write_graph(folder / "graph", labels)
        self.walks = write_walks(folder / "walks", walks, len(labels), shards)
        self.vocabulary = execute(
            prepare.STAGE, prepared, {"graph": self.graph.uri, "walks": self.walks.uri}, str(folder / "vocabulary"),
            Resources(cpu=2), Progress("prepare"),
        ).dataset  # fmt: skip

    def embed(self, name: str, threads: int = 1, initial: Dataset | None = None, **params: object) -> Dataset:
        inputs = {"graph": self.graph.uri, "walks": self.walks.uri, "vocabulary": self.vocabulary.uri}
        if initial is not None:
            inputs["initial"] = initial.uri
        resources = Resources(cpu=threads)
        return execute(embed.STAGE, params, inputs, str(self.folder / name), resources, Progress("embed")).dataset


def vectors(dataset: Dataset) -> tuple[list[str], np.ndarray]:
    """Labels and vectors of an embed dataset."""
    table = dataset.table("embeddings.parquet")
    column = table["vector"].combine_chunks()
    return table["node"].to_pylist(), column.flatten().to_numpy().reshape(len(table), -1)


def separation(values: np.ndarray, size: int) -> float:
    """Mean cosine inside communities of `size` consecutive vertices, less that across them, of centred vectors."""
    values = values - values.mean(axis=0)
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    cosine = unit @ unit.T
    same = np.equal.outer(np.arange(len(values)) // size, np.arange(len(values)) // size)
    off_diagonal = ~np.eye(len(values), dtype=bool)
    return float(cosine[same & off_diagonal].mean() - cosine[~same].mean())
