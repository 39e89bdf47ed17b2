"""Stage `publish`: the bundle's files, their order, and that they never vary."""

import itertools
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.params import parse_params
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks.publish import STAGE, PublishParams
from tests.datasets import commit

NODES = ["zoë", "10", "2", "a b", "日本", "b", "", "B"]


def embeddings(folder, nodes, vectors, row_group_size=3):
    writer = DatasetWriter(folder)
    flat = pa.array(np.asarray(vectors, dtype=np.float32).ravel())
    kind = pa.FixedSizeListArray.from_arrays(flat, np.shape(vectors)[1])
    with writer.file("embeddings.parquet") as path:
        pq.write_table(
            pa.table({"node": pa.array(nodes, pa.string()), "vector": kind}), path, row_group_size=row_group_size
        )
    return commit(writer, "embed", {"name": folder.name}).uri


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(len(NODES), 5)).astype(np.float32)


def publish(tmp_path, name="bundle", evaluation=None, nodes=NODES, vectors=None, **params):
    source = tmp_path / f"embeddings-{name}"
    inputs = {"embeddings": embeddings(source, nodes, vectors)} | ({"evaluation": evaluation} if evaluation else {})
    return execute(STAGE, params, inputs, str(tmp_path / name), Resources(), Progress("publish")).dataset


def test_bundle_holds_every_vector_under_its_node(tmp_path, vectors):
    made = publish(tmp_path, vectors=vectors)
    np.testing.assert_array_equal(made.array("vectors.npy"), vectors)
    np.testing.assert_allclose(made.array("norms.npy"), np.linalg.norm(vectors, axis=1), rtol=1e-6)
    text, offsets = made.array("nodes.npy"), made.array("node_offsets.npy")
    nodes = [text[a:b].tobytes().decode() for a, b in itertools.pairwise(offsets)]
    assert nodes == NODES
    ordered = [nodes[row] for row in made.array("node_order.npy")]
    assert ordered == sorted(NODES, key=str.encode)
    assert made.stats["nodes"] == made.manifest.rows == len(NODES)
    facts = made.json("bundle.json")
    assert facts["embeddings"] == Dataset.open(tmp_path / "embeddings-bundle").digest
    assert (facts["nodes"], facts["dimensions"], facts["metric"], facts["metrics"]) == (len(NODES), 5, "cosine", {})


def test_bundle_is_the_same_bytes_again(tmp_path, vectors):
    first = publish(tmp_path, vectors=vectors)
    sums = {name: first.local(name).read_bytes() for name in first.files()}
    for folder in ("bundle", "embeddings-bundle"):
        shutil.rmtree(tmp_path / folder)
    again = publish(tmp_path, vectors=vectors)
    assert {name: again.local(name).read_bytes() for name in again.files()} == sums
    assert again.manifest.files == first.manifest.files


def test_quality_travels_in_the_bundle(tmp_path, vectors):
    writer = DatasetWriter(tmp_path / "evaluation")
    writer.json("metrics.json", {"micro_f1@0.5": 0.38})
    made = publish(tmp_path, vectors=vectors, evaluation=commit(writer, "evaluate", {"name": "evaluation"}).uri)
    assert made.json("bundle.json")["metrics"] == {"micro_f1@0.5": 0.38}
    assert made.json("bundle.json")["evaluation"] == Dataset.open(tmp_path / "evaluation").digest
    assert json.loads((tmp_path / "bundle" / "bundle.json").read_text())


def test_node_with_two_embeddings_is_named(tmp_path, vectors):
    with pytest.raises(UserError, match=r"a node has two embeddings \(got 'b'\)"):
        publish(tmp_path, nodes=[*NODES[:-1], "b"], vectors=vectors)
    assert not (tmp_path / "bundle" / "manifest.json").exists()


def test_no_embeddings(tmp_path):
    with pytest.raises(UserError, match="no embeddings to publish"):
        publish(tmp_path, nodes=[], vectors=np.zeros((0, 5)))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"metric": "euclid"}, r"publish\.metric.*'euclid'"),
        ({"name": "mine"}, r"publish\.name: unknown parameter"),
    ],
)
def test_parameters_are_checked(params, message):
    with pytest.raises(UserError, match=message):
        parse_params(PublishParams, params, "publish")


def test_estimate_foresees_the_bytes_of_the_bundle(tmp_path):
    vectors = np.zeros((2000, 32), np.float32)
    made = publish(tmp_path, nodes=[f"node-{i:05d}" for i in range(2000)], vectors=vectors)
    foreseen = STAGE.estimate(PublishParams(), {"embeddings": {"rows": 2000, "dimensions": 32}}, Resources())
    assert 0.8 < foreseen.output_bytes / made.manifest.bytes < 1.3
