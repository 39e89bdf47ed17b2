"""The embed stage as a process runs it: threads, checkpoints, warm start, divergence, output, export, estimate."""

import json
import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.params import parse_params
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.replacement import replacing
from superworkflow.tasks.embed import EmbedParams, estimate, tables, train
from superworkflow.tasks.embed.export import write_word2vec
from tests.tasks.embedding_inputs import Inputs, community_walks, separation, vectors

SIZE = 25
SMALL = {"dimensions": 16, "window": 5, "shared_negatives": 16}


@pytest.fixture
def communities(tmp_path):
    walks = community_walks(2, SIZE, 1500, 30, 0.02)
    return Inputs(tmp_path, walks, [f"node {v}" for v in range(2 * SIZE)], shards=3)


@pytest.mark.parametrize("params", [{}, {"optimizer": "adagrad", "learning_rate": 0.5}, {"kernel": "torch"}])
def test_two_communities_separate(communities, params):
    _, found = vectors(communities.embed("embeddings", 2, **SMALL, **params))
    assert separation(found, SIZE) > 0.4


def test_one_thread_is_bit_identical_and_another_seed_is_not(communities):
    first, again = communities.embed("a", **SMALL), communities.embed("b", **SMALL)
    assert [f.sha256 for f in first.manifest.files] == [f.sha256 for f in again.manifest.files]
    other = communities.embed("c", **SMALL, seed=43)
    assert [f.sha256 for f in first.manifest.files] != [f.sha256 for f in other.manifest.files]


def test_quality_and_loss_hold_with_more_threads_and_with_torch(communities):
    one = communities.embed("one", 1, **SMALL, epochs=2)
    for name, threads, more in (("four", 4, {}), ("torch", 2, {"kernel": "torch", "batch": 8})):
        other = communities.embed(name, threads, **SMALL, epochs=2, **more)
        assert other.stats["loss"] == pytest.approx(one.stats["loss"], rel=0.1)
        assert separation(vectors(other)[1], SIZE) > 0.7 * separation(vectors(one)[1], SIZE)


@pytest.mark.parametrize("params", [{}, {"optimizer": "adagrad", "learning_rate": 0.5}, {"kernel": "torch"}])
@pytest.mark.parametrize("stop_after", [1, 2, 4, 5])
def test_an_interrupted_run_resumes_to_the_same_vectors(communities, monkeypatch, stop_after, params):
    given = SMALL | {"epochs": 2} | params
    whole = communities.embed("whole", **given)
    monkeypatch.setattr(train, "CHECKPOINT_SECONDS", -1.0)  # a checkpoint after each shard
    shard = train.train_shard
    done = 0

    def fail_after(*arguments):
        nonlocal done
        if done == stop_after:
            raise MemoryError("killed here")
        done += 1
        shard(*arguments)

    monkeypatch.setattr(train, "train_shard", fail_after)
    with pytest.raises(MemoryError):
        communities.embed("broken", **given)
    assert not (communities.folder / "broken" / "manifest.json").exists()
    calls = []
    monkeypatch.setattr(train, "train_shard", lambda *arguments: (calls.append(1), shard(*arguments)))
    resumed = communities.embed("broken", **given)
    assert len(calls) == 6 - stop_after
    assert [f.sha256 for f in resumed.manifest.files] == [f.sha256 for f in whole.manifest.files]
    assert resumed.stats["loss"] == whole.stats["loss"]


def test_a_damaged_or_foreign_checkpoint_is_not_used(tmp_path):
    made = tables.EmbeddingTables.random(6, 4, 1, False)
    position = tables.EmbeddingPosition(epoch=1, shard=2, losses=[1.5])
    tables.save_checkpoint(tmp_path, made, position)
    other = tables.EmbeddingTables.random(6, 4, 2, False)
    assert tables.load_checkpoint(tmp_path, other) == position
    np.testing.assert_array_equal(other.centre, made.centre)
    assert tables.load_checkpoint(tmp_path, tables.EmbeddingTables.random(7, 4, 1, False)) is None
    tables.save_checkpoint(tmp_path, made, tables.EmbeddingPosition(epoch=2))
    assert len(list(tmp_path.glob("*.npy"))) == 4
    next(tmp_path.glob("context-*.npy")).write_bytes(b"short")
    assert tables.load_checkpoint(tmp_path, other) is None


def test_a_diverging_run_stops_with_one_clear_error(communities):
    with pytest.raises(UserError, match=r"embed.learning_rate: training diverged.*got 50.*step_bound"):
        communities.embed("diverged", 2, **SMALL, learning_rate=50, step_bound=0)
    assert not (communities.folder / "diverged" / "manifest.json").exists()


def test_warm_start_takes_the_vectors_of_the_same_labels(tmp_path, communities):
    earlier = communities.embed("earlier", **SMALL)
    walks = np.flip(2 * SIZE - 1 - community_walks(2, SIZE, 64, 30, 0.02), 1) + 1
    labels = ["new", *(f"node {v}" for v in reversed(range(2 * SIZE)))]
    walks[0, 0] = 0
    (tmp_path / "next").mkdir()
    later = Inputs(tmp_path / "next", walks, labels)
    made = later.embed("warm", initial=earlier, **SMALL, learning_rate=1e-6)
    assert made.stats["matched"] == 2 * SIZE
    names, found = vectors(made)
    before = dict(zip(*vectors(earlier), strict=True))
    assert names == labels
    for name, vector in zip(names[1:], found[1:], strict=True):
        np.testing.assert_allclose(vector, before[name], atol=1e-3)
    assert np.linalg.norm(found[0]) < 0.5
    with pytest.raises(UserError, match=r"embed.dimensions: the earlier embeddings have 16 dimensions.*got 8"):
        later.embed("other", initial=earlier, dimensions=8)
    strangers = Inputs(tmp_path / "strangers", walks, [f"stranger {v}" for v in range(2 * SIZE + 1)])
    with pytest.raises(UserError, match="share no node label"):
        strangers.embed("none", initial=earlier, **SMALL)


def test_output_is_in_vertex_order_without_dropped_vertices_and_in_row_groups(tmp_path, monkeypatch):
    walks = community_walks(2, SIZE, 300, 20, 0.1)
    walks[walks == 3] = 4
    monkeypatch.setattr("superworkflow.tasks.embed.run.ROW_GROUP_BYTES", 4 * 16 * 10)
    inputs = Inputs(tmp_path, walks, [f"node {v}" for v in range(2 * SIZE)])
    made = inputs.embed("embeddings", **SMALL)
    names, found = vectors(made)
    assert names == [f"node {v}" for v in range(2 * SIZE) if v != 3]
    assert found.dtype == np.float32
    assert found.shape == (2 * SIZE - 1, 16)
    assert made.manifest.rows == made.stats["rows"] == 2 * SIZE - 1
    with made.parquet("embeddings.parquet") as file:
        assert str(file.schema_arrow.field("vector").type) == "fixed_size_list<element: float>[16]"
        assert file.metadata.num_row_groups == 5


def test_word2vec_text_holds_the_same_vectors(tmp_path):
    inputs = Inputs(tmp_path, community_walks(2, SIZE, 100, 20, 0.1), [f"ü{v}" for v in range(2 * SIZE)])
    made = inputs.embed("embeddings", **SMALL)
    write_word2vec(made, tmp_path / "out.txt")
    header, *lines = (tmp_path / "out.txt").read_text(encoding="utf-8").splitlines()
    assert header == f"{2 * SIZE} 16"
    names, found = vectors(made)
    assert [line.split(" ")[0] for line in lines] == names
    read = np.array([[float(x) for x in line.split(" ")[1:]] for line in lines], np.float32)
    np.testing.assert_array_equal(read, found)


def test_a_label_with_white_space_cannot_be_exported(communities):
    made = communities.embed("embeddings", **SMALL)
    with (
        pytest.raises(UserError, match=r"white space.*node 0"),
        replacing(Location.of(communities.folder / "out.txt")) as path,
    ):
        write_word2vec(made, path)
    assert not list(communities.folder.glob("out.txt*"))


def test_a_gpu_that_is_not_there_is_named(communities):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UserError, match=r"embed.device: no CUDA device.*got 'cuda'.*embed.device=cpu"):
        communities.embed("gpu", device="cuda", **SMALL)
    with pytest.raises(UserError, match=r"embed.kernel: this kernel trains on the cpu only"):
        communities.embed("gpu", device="cuda", kernel="numba", **SMALL)


def test_a_precision_that_the_kernel_does_not_have_is_named(communities):
    with pytest.raises(UserError, match=r"embed.products: the numba kernel multiplies in bfloat16.*got 'float32'"):
        communities.embed("precise", products="float32", **SMALL)


@pytest.mark.parametrize(
    ("name", "value"),
    [("window", 0), ("dimensions", 1), ("negative", 0), ("epochs", 0), ("learning_rate", 0), ("shared_negatives", 9)],
)
def test_bad_parameters_name_field_and_range(name, value):
    with pytest.raises(UserError, match=rf"embed\.{name}: .*got {value}"):
        parse_params(EmbedParams, {name: value}, "embed")
    with pytest.raises(ValidationError):
        EmbedParams(**{name: value})


def test_tunable_parameters_declare_their_search_range():
    for name, field in EmbedParams.model_fields.items():
        assert field.description, name
        search = (field.json_schema_extra or {}).get("search")
        if search and search["type"] != "categorical":
            for end in (search["low"], search["high"]):
                EmbedParams(**{name: end})
        elif search:
            for choice in search["choices"]:
                EmbedParams(**{name: choice})


_PEAK = """
import json, sys
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources
from superworkflow.tasks.embed import STAGE
params, inputs, output = json.loads(sys.argv[1])
made = execute(STAGE, params, inputs, output, Resources(cpu=2), Progress("embed"))
print(made.manifest.measured.peak_memory_bytes)
"""


@pytest.mark.parametrize(
    ("vertices", "d"), [(2_000, 16), (100_000, 128), pytest.param(300_000, 128, marks=pytest.mark.slow)]
)
def test_memory_is_predicted_within_a_fifth(tmp_path, vertices, d):
    walks = np.random.default_rng(0).permutation(vertices)[: vertices // 20 * 20].reshape(-1, 20)
    inputs = Inputs(tmp_path, walks, [str(v) for v in range(vertices)])
    inputs.embed("compiled", dimensions=2)  # compiles the kernel, which is cached
    given = {"graph": inputs.graph.uri, "walks": inputs.walks.uri, "vocabulary": inputs.vocabulary.uri}
    argument = json.dumps([{"dimensions": d}, given, str(tmp_path / "out")])
    run = subprocess.run([sys.executable, "-c", _PEAK, argument], capture_output=True, text=True, check=True)
    stats = {"walks": inputs.walks.stats, "vocabulary": inputs.vocabulary.stats, "graph": inputs.graph.stats}
    predicted = estimate(EmbedParams(dimensions=d), stats, Resources(cpu=2)).memory_bytes
    assert predicted == pytest.approx(int(run.stdout), rel=0.2)


def test_without_a_sampled_pair_there_is_no_loss(tmp_path):
    """One walk in 256 has its loss computed; walks of one vertex have none."""
    alone = Inputs(tmp_path, np.arange(6)[:, None], [f"v{i}" for i in range(6)])
    made = alone.embed("embeddings", **SMALL, epochs=2)
    assert made.stats["loss"] is None
    assert np.isfinite(vectors(made)[1]).all()
