"""One rule for "no label": the same values mean it in files, in typed graphs and in the probe."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.label.match import match
from superworkflow.tasks.lib.edge_list.label_file import parse
from superworkflow.tasks.lib.gnn.objective.label_lists import label_lists
from superworkflow.tasks.lib.gnn.objective.labels import label_texts, targets_of
from superworkflow.tasks.lib.gnn.objective.node_prediction import Classification
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph, Ragged
from superworkflow.tasks.lib.graph.missing_labels import is_missing, missing
from superworkflow.tasks.probe.labels import label_of, labels_of
from tests.tasks.heterographs import Edges, Nodes, write_heterograph

NONE = ["", "-1", "-12", "-1.0", "nan", "NaN", "None", "none", "NULL", "<NA>"]
SOME = ["0", "-0", "1", "1.5", "a", "-a", "nano", "none of these", "1-1"]


def test_texts() -> None:
    assert [is_missing(text) for text in NONE] == [True] * len(NONE)
    assert [is_missing(text) for text in SOME] == [False] * len(SOME)
    assert [is_missing(text.encode()) for text in (*NONE, *SOME, "ü")] == [True] * len(NONE) + [False] * 10


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (np.array([0, -1, 3, -7]), [False, True, False, True]),
        (np.array([0.0, np.nan, -1.0, 2.0], np.float32), [False, True, True, False]),
        (np.array([True, False]), [False, False]),
        (np.array([0, 255], np.uint8), [False, False]),
        (pa.array(["x", None, "nan", "x", "-1"], pa.large_string()), [False, True, True, False, True]),
        (pa.array([b"x", b"", b"\xff"], pa.large_binary()), [False, True, False]),
        (pa.array([], pa.large_string()), []),
    ],
    ids=str,
)
def test_arrays(labels: object, expected: list[bool]) -> None:
    assert missing(labels).tolist() == expected


@pytest.mark.parametrize("header", ["", "node,label\n"])
@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_rows_of_a_file(tmp_path: Path, header: str, delimiter: str) -> None:
    nodes = [f"n{i}" for i in range(len(NONE) + 3)]
    labels = [*NONE, "x", "y", "0"]
    path = tmp_path / "labels.csv"
    text = header + "".join(f"{node},{label}\n" for node, label in zip(nodes, labels, strict=True))
    path.write_text(text.replace(",", delimiter))
    rows = parse(path, "labels.csv")
    assert (rows.nodes, rows.labels, rows.missing) == (nodes[-3:], ["x", "y", "0"], len(NONE))
    found, unknown = match(rows, "labels.csv", pa.chunked_array([nodes]), 0.0)
    assert (found.vertices.tolist(), found.names, unknown) == ([10, 11, 12], ["0", "x", "y"], 0)


def test_a_file_without_any_label_says_what_its_rows_have(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("a,-1\nb,nan\n")
    with pytest.raises(UserError, match=r"no labels in this file \(got '2 rows have no label \(an empty field, nan"):
        parse(path, "labels.csv")


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (np.array([1, -1, 0, 1, -3, 0]), ["1", None, "0", "1", None, "0"]),
        (["b", "", "a", "b", "nan", "a"], ["b", None, "a", "b", None, "a"]),
        (["1", "None", "0", "1", "-1", "0"], ["1", None, "0", "1", None, "0"]),
    ],
    ids=["numbers", "texts", "numbers as texts"],
)
def test_typed_graphs_and_the_probe(tmp_path: Path, values: object, texts: list[str | None]) -> None:
    ids = list("abcdef")
    nodes = {"paper": Nodes(ids, {"venue": values})}
    graph = HeteroGraph(write_heterograph(tmp_path / "graph", nodes, {"cites": Edges("paper", "paper", [("a", "b")])}))
    assert label_texts(graph, "paper.venue") == texts
    targets = targets_of(graph, "paper.venue", (0.6, 0.2), 0)
    assert [None if kind < 0 else targets.names[kind] for kind in targets.classes] == texts
    labels, has = labels_of(graph, label_of(graph, "paper.venue", "paper"), "paper", np.arange(6))
    assert has.tolist() == [text is not None for text in texts]
    shown = [label.decode() if isinstance(label, bytes) else str(label) for label in labels[has].tolist()]
    assert shown == [text for text in texts if text is not None]


def test_a_class_of_nodes_outside_all_splits_is_none(tmp_path: Path) -> None:
    """As where subgraphs of some seeds are trained on: other nodes' classes are neither learned nor judged."""
    given = {"venue": list("cabca"), "split": ["train", "", "train", "test", "validation"]}
    nodes = {"paper": Nodes(list("vwxyz"), given)}
    graph = HeteroGraph(write_heterograph(tmp_path / "graph", nodes, {"cites": Edges("paper", "paper", [("v", "w")])}))
    (doubt,) = Classification(targets_of(graph, "paper.venue", (0.6, 0.2), 0)).doubts
    assert str(doubt).startswith("paper.venue: classes without a node to train on")
    assert doubt.value == "a"
    graph.splits["paper"] = np.array([0, -1, 0, 2, -1], np.int8)
    targets = targets_of(graph, "paper.venue", (0.6, 0.2), 0)
    assert not Classification(targets).doubts
    assert (targets.names, targets.classes.tolist()) == (("b", "c"), [1, -1, 0, 1, -1])
    graph.splits["paper"] = np.array([0, -1, -1, 2, -1], np.int8)
    with pytest.raises(UserError, match=r"labels of two kinds \(got 'c'\)"):
        targets_of(graph, "paper.venue", (0.6, 0.2), 0)


@pytest.mark.parametrize(
    "values",
    [
        Ragged(np.array([1, -1, 2, 1, -5, 2]), np.array([0, 2, 4, 5, 6])),
        [["1", "nan"], ["2", "1"], ["-1"], ["2"]],
    ],
    ids=["numbers", "texts"],
)
def test_lists_of_labels(tmp_path: Path, values: object) -> None:
    nodes = {"paper": Nodes(list("abcd"), {"topics": values})}
    graph = HeteroGraph(write_heterograph(tmp_path / "graph", nodes, {"cites": Edges("paper", "paper", [("a", "b")])}))
    assert label_lists(graph, "paper.topics") == [["1"], ["2", "1"], [], ["2"]]
