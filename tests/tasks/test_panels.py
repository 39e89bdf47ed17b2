"""Panels: what their functions make of small datasets, and the document that pages read."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from superworkflow.dashboards.web.panels import read_panel
from superworkflow.infra.contract.panel import MOST_ROWS, Panel, packed, panel_document, plot, points, table
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks.lib.metrics.ranks import HITS_FILE
from superworkflow.tasks.lib.panels.graph_profile import profile
from superworkflow.tasks.lib.panels.node_projection import projection
from superworkflow.tasks.score.panels import classes
from superworkflow.tasks.score_links.panels import links
from tests.datasets import commit


def _dataset(folder: Path, stage: str, tables: dict[str, pa.Table], arrays: dict[str, Any], **stats: Any) -> Dataset:
    writer = DatasetWriter(str(folder / stage))
    for name, values in tables.items():
        writer.table(name, values)
    for name, values in arrays.items():
        writer.array(name, values) if name.endswith(".npy") else writer.json(name, values)
    return commit(writer, stage, stats=stats)


def _unpacked(given: dict[str, str]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(given["bdata"]), np.dtype(given["dtype"]).newbyteorder("<"))


@pytest.fixture
def graph(tmp_path: Path) -> Dataset:
    """Two triangles, one of them with a tail, and a vertex without edges."""
    edges = [(0, 1), (1, 2), (0, 2), (2, 3), (4, 5), (5, 6), (4, 6)]
    arcs = sorted([*edges, *((v, u) for u, v in edges)])
    lengths = np.bincount([u for u, _ in arcs], minlength=8)
    return _dataset(
        tmp_path, "index", {"vertices.parquet": pa.table({"node": list("abcdefgh"), "degree": lengths})},
        {"indptr.npy": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
         "indices.npy": np.array([v for _, v in arcs], np.int32)},
        **{"vertices": 8, "bytes": 3 << 19, "input_warning.1": "doubtful header"},
    )  # fmt: skip


@pytest.fixture
def labels(tmp_path: Path) -> Dataset:
    return _dataset(tmp_path, "label", {}, {
        "vertices.npy": np.arange(7), "offsets.npy": np.arange(8),
        "kinds.npy": np.array([0, 0, 0, 0, 1, 1, 1], np.int32), "names.json": ["left", "right"],
    })  # fmt: skip


def test_profile_of_a_graph(graph: Dataset, labels: Dataset) -> None:
    parts = {part.title: part for part in profile({"index": graph, "label": labels})}
    assert list(parts) == ["Sizes", "Degree distribution", "Components", "Label shares", "Input warnings"]
    assert parts["Sizes"].content["rows"][:2] == [["vertices", 8], ["size", "1.5 MiB"]]
    (bars,) = parts["Degree distribution"].content["data"]
    assert dict(zip(bars["x"], _unpacked(bars["y"]).tolist(), strict=True)) == {"0": 1, "1": 1, "2–3": 6}
    assert [row[1] for row in parts["Components"].content["rows"]] == [4, 3]
    assert parts["Components"].note == "3 in all, 1 of a single node."
    assert parts["Label shares"].content["data"][0]["y"] == [4 / 7, 3 / 7]
    assert parts["Input warnings"].content["rows"] == [["doubtful header"]]


def test_projection_has_labels_degrees_and_neighbours(tmp_path: Path, graph: Dataset, labels: Dataset) -> None:
    vectors = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    names = list("gfedcba")
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 4)
    embeddings = _dataset(tmp_path, "embed", {"embeddings.parquet": pa.table({"node": names, "vector": column})}, {})
    part = projection({"embed": embeddings, "index": graph, "label": labels})
    assert part is not None
    assert part.content["names"] == names
    by_label, degree = part.content["colourings"]
    assert by_label["kinds"] == ["left", "right"]
    assert _unpacked(by_label["codes"]).tolist() == [1, 1, 1, 0, 0, 0, 0]
    assert _unpacked(degree["values"]).tolist() == [2, 2, 2, 1, 3, 2, 2]
    starts, ends = (_unpacked(part.content["links"][name]) for name in ("starts", "ends"))
    around = {names[row]: {names[each] for each in ends[starts[row] : starts[row + 1]]} for row in range(7)}
    assert around["c"] == {"a", "b", "d"}
    assert around["g"] == {"e", "f"}
    assert np.isfinite(_unpacked(part.content["x"])).all()


def test_panel_of_classes(tmp_path: Path) -> None:
    rows = {"split": ["test"] * 2, "class": ["a", "b"], "precision": [0.5, None], "recall": [1.0, 0.0],
            "f1": [0.7, 0.0], "support": [3, 1], "predicted": [4, 0], "roc_auc": [0.9, 0.9]}  # fmt: skip
    confusion = {"split": ["test"] * 2, "label": ["a", "b"], "predicted": ["a", "a"], "nodes": [3, 1]}
    scores = _dataset(
        tmp_path, "score", {"classes.parquet": pa.table(rows), "confusion.parquet": pa.table(confusion)}, {}
    )
    predicted = {"node": ["x", "y", "z"], "label": ["b", "a", "b"], "predicted": ["a", "a", "a"],
                 "probability": [0.6, 0.9, 0.8], "split": ["test", "test", "train"]}  # fmt: skip
    predictions = _dataset(tmp_path, "infer", {"predictions.parquet": pa.table(predicted)}, {})
    parts = classes({"score": scores, "infer": predictions})
    assert parts is not None
    heat = parts[0].content["data"][0]
    assert (heat["y"], heat["z"]) == (["a", "b"], [[1.0, 0.0], [1.0, 0.0]])
    assert parts[1].content["rows"][1] == ["b", None, 0.0, 0.0, 1, 0, 0.9]
    assert parts[2].content["rows"] == [["x", "b", "a", 0.6]], "those of other splits are none"


def test_hits_are_drawn_in_the_order_of_k(tmp_path: Path) -> None:
    shares = {str(k): k / 200 for k in (1, 2, 3, 5, 10, 20, 50, 100)}
    parts = links({"score_links": _dataset(tmp_path, "score_links", {}, {HITS_FILE: {"test": shares}})})
    assert parts is not None
    (line,) = parts[0].content["data"]
    assert (line["x"], line["y"]) == ([1, 2, 3, 5, 10, 20, 50, 100], list(shares.values()))


def test_a_document_is_read_back_as_pages_draw_it() -> None:
    panel = Panel("fit", "m:f", "errors", title="Errors")
    parts = [table(["row"], [[number] for number in range(MOST_ROWS + 5)]),
             plot([{"type": "bar", "x": packed(np.arange(3)), "y": [1, 2, 3]}], height=200),
             points(np.zeros(2), np.ones(2), ["a", "b"])]  # fmt: skip
    found = read_panel(json.dumps(panel_document(panel, parts), allow_nan=False).encode())
    assert found is not None
    assert (found["name"], found["parts"][0]["all"], len(found["parts"][0]["rows"])) == (
        "errors",
        MOST_ROWS + 5,
        MOST_ROWS,
    )
    assert found["parts"][1]["layout"]["height"] == 200
    assert _unpacked(found["parts"][1]["data"][0]["x"]).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"parts": 1}', b'{"parts": [1]}', b'{"parts": [{"kind": "plot"}]}', b"\xff"]
)
def test_what_is_no_panel_is_none(text: bytes) -> None:
    assert read_panel(text) is None
