"""Stage `evaluate` as a whole, on datasets as other stages write them."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.params import parse_params
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks.evaluate import STAGE, EvaluateParams, fit_bytes, fits_at_once
from tests.datasets import commit

N, D, BLOCKS = 240, 12, 3


def dataset(folder, stage, arrays=None, tables=None, stats=None, names=None):
    """Write a dataset of another stage; its digest is of its folder's name."""
    writer = DatasetWriter(folder)
    for name, values in (arrays or {}).items():
        writer.array(name, values)
    for name, table in (tables or {}).items():
        with writer.file(name) as path:
            pq.write_table(table, path, row_group_size=50)
    if names is not None:
        writer.json("names.json", names)
    return commit(writer, stage, {"name": folder.name}, stats or {}, N).uri


def embeddings(folder, nodes, vectors):
    flat = pa.array(vectors.astype(np.float32).ravel())
    table = pa.table({"node": nodes, "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])})
    return dataset(folder, "embed", tables={"embeddings.parquet": table}, stats={"dimensions": vectors.shape[1]})


def labels(folder, table, names):
    """A label dataset."""
    return dataset(
        folder, "label", arrays={f"{name}.npy": values for name, values in table.items()}, names=names,
        stats={"labelled_nodes": len(table["vertices"]), "labels": len(names)},
    )  # fmt: skip


@pytest.fixture
def inputs(tmp_path):
    """Blocks of nodes with vectors near the centre of their block, in another order than the graph's."""
    rng = np.random.default_rng(0)
    block = rng.integers(0, BLOCKS, N)
    nodes = [f"n{i}" for i in rng.permutation(N)]
    vectors = rng.normal(size=(BLOCKS, D))[block] * 2 + rng.normal(size=(N, D))
    order = rng.permutation(N)
    pairs = rng.integers(0, N, size=(3000, 2))
    same = block[pairs[:, 0]] == block[pairs[:, 1]]
    ends = {"train_positives": pairs[same][:200], "train_negatives": pairs[~same][:200]}
    ends |= {"positives": pairs[same][200:400], "negatives": pairs[~same][200:400]}
    degrees = np.bincount(ends["train_positives"].ravel(), minlength=N)
    kinds = [f"block {number}" for number in range(BLOCKS)]
    table = {"vertices": np.arange(N), "offsets": np.arange(N + 1), "kinds": block.astype(np.int32)}
    vertices = pa.table({"node": nodes})
    shuffled = [nodes[i] for i in order]
    return {
        "graph": dataset(tmp_path / "graph", "index", tables={"vertices.parquet": vertices}, stats={"vertices": N}),
        "embeddings": embeddings(tmp_path / "embeddings", shuffled, vectors[order]),
        "labels": labels(tmp_path / "labels", table, kinds),
        "holdout": dataset(
            tmp_path / "holdout",
            "holdout",
            arrays={f"{name}.npy": part for name, part in ends.items()}
            | {"indptr.npy": np.concatenate([[0], np.cumsum(degrees)])},
        ),
        "holdout_embeddings": embeddings(tmp_path / "holdout_embeddings", shuffled[5:], vectors[order][5:]),
    }


def evaluate(tmp_path, inputs, name="output", threads=1, stream=None, **params):
    params = {"shuffles": 3, "projection_sample": 60, **params}
    resources = Resources(cpu=threads)
    return execute(STAGE, params, inputs, str(tmp_path / name), resources, Progress("evaluate", stream=stream)).dataset


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_edges_that_another_graph_has_are_not_asked_for(tmp_path, inputs, share):
    """The other graph has its vertices in another order, and one more; some of the held-out edges are in it."""
    graph, positives = Dataset.open(inputs["graph"]), Dataset.open(inputs["holdout"])
    nodes = graph.table("vertices.parquet")["node"].to_pylist()
    pairs = positives.array("positives.npy")
    other = ["more", *reversed(nodes)]
    place = {node: number for number, node in enumerate(other)}
    ends = np.array([[place[nodes[u]], place[nodes[v]]] for u, v in pairs[: int(share * len(pairs))]])
    arcs = np.unique(np.concatenate([ends, ends[:, ::-1]]), axis=0)
    inputs["seen"] = dataset(
        tmp_path / "seen", "holdout", tables={"vertices.parquet": pa.table({"node": other})},
        arrays={"indptr.npy": np.searchsorted(arcs[:, 0], np.arange(len(other) + 1)),
                "indices.npy": arcs[:, 1].astype(np.int32)},
    )  # fmt: skip
    made = evaluate(tmp_path, {k: v for k, v in inputs.items() if k != "labels"}, projection_sample=0)
    joined = {frozenset(map(int, pair)) for pair in pairs[: int(share * len(pairs))]}
    left = sum(frozenset(map(int, pair)) not in joined for pair in pairs)
    if share == 1.0:
        assert (made.json("metrics.json"), made.stats["link_test_pairs"]) == ({}, 0)
    else:
        assert made.stats["link_test_pairs"] == left + 200
        assert made.json("metrics.json")["link_auc@weighted-l2"] > 0.9


def test_labels_and_links(tmp_path, inputs):
    made = evaluate(tmp_path, inputs)
    metrics = made.json("metrics.json")
    assert {name.removeprefix("metrics."): v for name, v in made.stats.items() if "metrics." in name} == metrics
    for ratio in ("0.1", "0.5", "0.9"):
        assert {f"{m}@{ratio}" for m in ("micro_f1", "macro_f1", "micro_f1_std", "macro_f1_std")} <= set(metrics)
    assert metrics["micro_f1@0.5"] > 0.95
    assert metrics["link_auc@weighted-l2"] > 0.9
    held_out = Dataset.open(inputs["holdout"])
    pairs = [held_out.array(f"{name}.npy") for name in ("positives", "negatives")]
    products = np.diff(held_out.array("indptr.npy"))[np.concatenate(pairs)].prod(axis=1)
    simple = roc_auc_score(np.repeat([1, 0], [200, 200]), products)
    assert metrics["degree_product_link_auc@hadamard"] == pytest.approx(simple)
    judged = {name for name in metrics if name.startswith("link_auc@")}
    assert judged == {f"link_auc@{name}" for name in EvaluateParams().link_operators}
    scores = made.table("scores.parquet")
    assert scores.num_rows == 9
    at_half = scores.to_pandas().query("train_ratio == 0.5").micro_f1
    assert metrics["micro_f1@0.5"] == pytest.approx(at_half.mean())
    assert metrics["micro_f1_std@0.5"] == pytest.approx(at_half.std(ddof=0))
    assert made.stats["labelled_nodes"] == N
    assert made.stats["labels"] == BLOCKS
    assert made.stats["link_test_pairs"] == 400
    assert made.stats["link_vertices_without_vector"] == 5
    projection = made.table("projection.parquet")
    assert projection.schema.names == ["node", "x", "y", "label"]
    assert projection.num_rows == made.stats["projected_nodes"] == 60
    nodes = pq.read_table(Path(inputs["graph"], "vertices.parquet"))["node"].to_pylist()
    kinds = np.load(Path(inputs["labels"], "kinds.npy"))
    truth = {node: f"block {kind}" for node, kind in zip(nodes, kinds, strict=True)}
    assert all(truth[row["node"]] == row["label"] for row in projection.to_pylist())
    assert np.isfinite(projection["x"].to_numpy()).all()


def test_operators_of_choice(tmp_path, inputs):
    """The dot product of vectors, which may score below chance, is there for those who ask for it."""
    assert "dot" not in EvaluateParams().link_operators
    chosen = evaluate(tmp_path, inputs, link_operators=["dot", "hadamard"]).json("metrics.json")
    assert {name for name in chosen if "link" in name} == {
        "link_auc@dot", "link_auc@hadamard", "degree_product_link_auc@hadamard",
    }  # fmt: skip
    for wrong in ([], ["dot", "dot"], ["cosines"]):
        with pytest.raises(UserError, match=r"evaluate.link_operators"):
            evaluate(tmp_path, inputs, name="wrong", link_operators=wrong)


def test_same_bytes_for_any_number_of_threads(tmp_path, inputs):
    one, two = (evaluate(tmp_path, inputs, name=f"threads{n}", threads=n) for n in (1, 2))
    assert one.manifest.files == two.manifest.files
    other = evaluate(tmp_path, inputs, name="seed", seed=1)
    assert other.manifest.files != one.manifest.files


@pytest.mark.parametrize(("memory", "workers"), [("8Gi", 4), ("4Gi", 2), ("1Gi", 1), ("64Mi", 1)])
def test_fits_side_by_side_are_bounded_by_threads_and_memory(memory, workers):
    """Each fit takes 1 GB here, and half of the memory is for fits."""
    rows = 1_000_000_000 // fit_bytes(1, D, 100)
    assert fits_at_once(rows, D, 100, Resources(cpu=4, memory=memory)) == workers


def test_each_protocol_alone(tmp_path, inputs):
    links = evaluate(tmp_path, {k: v for k, v in inputs.items() if k != "labels"}, name="links")
    assert not any("f1" in name for name in links.stats)
    assert links.stats["metrics.link_auc@hadamard"] > 0.5
    assert links.table("projection.parquet")["label"].null_count == 60
    assert links.table("scores.parquet").num_rows == 0
    labels = evaluate(
        tmp_path, {k: v for k, v in inputs.items() if "holdout" not in k}, name="classes", projection_sample=0
    )
    assert not any("link" in name for name in labels.stats)
    assert labels.table("projection.parquet").num_rows == 0


def test_missing_vectors_are_zeros_and_counted(tmp_path, inputs):
    few = {**inputs, "embeddings": inputs["holdout_embeddings"]}
    made = evaluate(tmp_path, {k: v for k, v in few.items() if "holdout" not in k}, projection_sample=N)
    assert made.stats["labelled_nodes_without_vector"] == 5
    assert made.stats["projected_nodes"] == N - 5


@pytest.mark.parametrize(
    ("dropped", "message"),
    [
        (("labels", "holdout", "holdout_embeddings"), "nothing to judge the embeddings by.*--labels"),
        (("holdout_embeddings",), "needs both the holdout and embeddings that were trained without its edges"),
        (("holdout",), "needs both the holdout and embeddings"),
    ],
)
def test_inputs_that_do_not_suffice(tmp_path, inputs, dropped, message):
    with pytest.raises(UserError, match=message):
        evaluate(tmp_path, {k: v for k, v in inputs.items() if k not in dropped})
    assert not (tmp_path / "output" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"train_ratios": [0.5, 1.0]}, r"evaluate\.train_ratios\.1: input should be less than 1 \(got 1\.0\)"),
        ({"train_ratios": []}, r"evaluate\.train_ratios"),
        ({"train_ratios": [0.5, 0.5]}, "the same train ratio twice"),
        ({"shuffles": 0}, r"evaluate\.shuffles.*got 0"),
        ({"C": 0}, r"evaluate\.C.*got 0"),
        ({"ratio": 0.5}, r"evaluate\.ratio: unknown parameter"),
    ],
)
def test_parameters_are_checked(params, message):
    with pytest.raises(UserError, match=message):
        parse_params(EvaluateParams, params, "evaluate")


def test_train_ratio_too_small_for_the_labelled_nodes(tmp_path, inputs):
    with pytest.raises(UserError, match=r"evaluate\.train_ratios: this leaves 0 of 240 labelled nodes"):
        evaluate(tmp_path, inputs, train_ratios=[0.001])


def test_estimate_grows_with_the_labels_and_bounds_what_a_run_writes(tmp_path, inputs):
    stats = {
        "graph": {"vertices": 10_312},
        "embeddings": {"dimensions": 128},
        "labels": {"labelled_nodes": 10_312, "labels": 39},
    }
    small = STAGE.estimate(EvaluateParams(shuffles=1), stats, Resources(cpu=2))
    large = STAGE.estimate(EvaluateParams(), stats, Resources(cpu=2))
    assert large.cpu_s > small.cpu_s
    made = evaluate(tmp_path, inputs)
    assert json.dumps(dict(large.stats))
    assert made.manifest.bytes < large.output_bytes
