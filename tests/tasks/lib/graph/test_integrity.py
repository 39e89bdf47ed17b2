"""Inputs that do not fit each other are refused before a compiled kernel follows them."""

import io
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import DatasetDamaged, UserError
from superworkflow.infra.contract.stage import Progress, Resources, Stage
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks import embed, holdout, publish, walk
from superworkflow.tasks.lib.graph.integrity import check_rows
from superworkflow.tasks.walk.partitioned.vertex_ranges import read_rows
from tests.datasets import commit
from tests.tasks.embedding_inputs import Inputs, write_graph, write_walks
from tests.tasks.index_helpers import run_index

LABELS = [f"v{i}" for i in range(10)]


def run(stage: Stage, inputs: dict[str, Dataset], folder: Path, **params: object) -> Dataset:
    uris = {name: dataset.uri for name, dataset in inputs.items()}
    progress = Progress(stage.name, stream=io.StringIO())
    return execute(stage, params, uris, str(folder / "out"), Resources(cpu=1), progress).dataset


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return Inputs(tmp_path, np.arange(40).reshape(4, 10) % 10, LABELS)


@pytest.mark.parametrize("kernel", ["numba", "torch"])
def test_training_on_walks_of_a_larger_graph(inputs: Inputs, tmp_path: Path, kernel: str) -> None:
    walks = write_walks(tmp_path / "larger", np.random.default_rng(0).integers(0, 3_000_000, (200, 40)), 3_000_000, 2)
    given = {"graph": inputs.graph, "walks": walks, "vocabulary": inputs.vocabulary}
    with pytest.raises(UserError, match=r"walks-00000.npy: a vertex of the walks is not in the graph of 10 vertices"):
        run(embed.STAGE, given, tmp_path, dimensions=16, kernel=kernel)


def test_training_with_the_vocabulary_of_another_graph(inputs: Inputs, tmp_path: Path) -> None:
    given = {"walks": inputs.walks, "vocabulary": inputs.vocabulary}
    graph = write_graph(tmp_path / "other", [*LABELS, "one more"])
    with pytest.raises(UserError, match=r"the vocabulary does not belong to this graph of 11 vertices \(got 10\)"):
        run(embed.STAGE, given | {"graph": graph}, tmp_path, dimensions=16)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("negative_alias.npy", np.full(10, 10, np.int32)),
        ("negative_alias.npy", np.full(10, -1, np.int32)),
        ("negative_alias.npy", np.zeros(9, np.int32)),
        ("negative_threshold.npy", np.zeros(0, np.uint32)),
        ("remap.npy", np.full(10, 10, np.int32)),
        ("keep.npy", np.ones(9, np.float32)),
    ],
)
def test_training_with_a_vocabulary_that_does_not_fit_itself(
    inputs: Inputs, tmp_path: Path, name: str, values: np.ndarray
) -> None:
    writer = DatasetWriter(tmp_path / "altered")
    own = ("remap.npy", "negative_threshold.npy", "negative_alias.npy")
    for file in own:
        if file != name:
            writer.array(file, inputs.vocabulary.array(file))
    writer.array(name, values)
    altered = commit(writer, "prepare", {"name": "altered"}, {"rows": 10}, 10)
    given = {"graph": inputs.graph, "walks": inputs.walks, "vocabulary": altered}
    with pytest.raises(DatasetDamaged, match="files do not fit each other"):
        run(embed.STAGE, given, tmp_path, dimensions=16)


INDPTR, INDICES = np.array([0, 2, 3, 4]), np.array([1, 2, 0, 0], np.int32)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"indptr": np.array([0, 2, 3, 5])}, "5 arcs by indptr.npy"),
        ({"indptr": np.array([0, 3, 2, 4])}, "a row ends before it begins"),
        ({"indptr": np.array([1, 2, 3, 4])}, "from 0 on"),
        ({"indices": np.array([1, 2, 0, 3], np.int32)}, r"a neighbour is none of 3 vertices \(got 3\)"),
        ({"indices": np.array([1, 2, 0, -1], np.int32)}, r"a neighbour is none of 3 vertices \(got -1\)"),
        ({"weights": np.ones(3, np.float32)}, "4 arcs by indptr.npy"),
        ({"weights": np.array([1, 1, np.nan, 1], np.float32)}, "not a positive finite number"),
        ({"weights": np.array([1, 1, np.inf, 1], np.float32)}, "not a positive finite number"),
        ({"weights": np.array([1, 1, 0, 1], np.float32)}, "not a positive finite number"),
    ],
)
@pytest.mark.parametrize("stage", [walk.STAGE, holdout.STAGE, None], ids=["walk", "holdout", "partitioned walk"])
def test_graphs_that_do_not_fit_themselves(
    tmp_path: Path, changed: dict[str, np.ndarray], message: str, stage: Stage | None
) -> None:
    arrays = {"indptr": INDPTR, "indices": INDICES, "weights": np.ones(4, np.float32)}
    check_rows("graph", *arrays.values(), 3)
    writer = DatasetWriter(tmp_path / "graph")
    for name, values in (arrays | changed).items():
        writer.array(f"{name}.npy", values)
    writer.table("vertices.parquet", pa.table({"node": ["a", "b", "c"], "degree": [2, 1, 1]}))
    stats = {"vertices": 3, "edges": 2, "directed_edges": 4, "directed": False, "weighted": True}
    graph = commit(writer, "index", {"name": "graph"}, stats, 3)
    if stage is not None:
        with pytest.raises(DatasetDamaged, match=message):
            run(stage, {"graph": graph}, tmp_path)
    elif "indptr" not in changed and len(changed.get("weights", INDICES)) == 4:  # its files are read by ranges
        with pytest.raises(DatasetDamaged, match=message):
            read_rows(graph.location, 0, 3, weighted=True, second_order=True)


def test_a_graph_without_direction_whose_arcs_are_in_one_row_only(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("a,b\nb,c\nc,d\nd,a\na,c\n")
    whole = run_index(tmp_path / "g.csv", directed=True, header=False).dataset
    folder = tmp_path / "altered"
    shutil.copytree(whole.location.local_path, folder)
    altered = DatasetWriter(tmp_path / "half")
    for name in ("indptr", "indices"):
        altered.array(f"{name}.npy", whole.array(f"{name}.npy"))
    with altered.file("vertices.parquet") as path:
        shutil.copy(folder / "vertices.parquet", path)
    graph = commit(altered, "index", {"name": "half"}, dict(whole.stats) | {"directed": False}, 4)
    with pytest.raises(DatasetDamaged, match="arcs in one row only"):
        run(holdout.STAGE, {"graph": graph}, tmp_path)


def test_embeddings_without_a_vector(tmp_path: Path) -> None:
    writer = DatasetWriter(tmp_path / "embeddings")
    with writer.file("embeddings.parquet") as path:
        kind = pa.list_(pa.float32(), 2)
        pq.write_table(pa.table({"node": ["a", "b"], "vector": pa.array([[1, 2], [1, None]], kind)}), path)
    made = commit(writer, "embed", {"name": "embeddings"}, {"rows": 2, "dimensions": 2}, 2)
    with pytest.raises(DatasetDamaged, match="a row has no node or no vector"):
        run(publish.STAGE, {"embeddings": made}, tmp_path)
