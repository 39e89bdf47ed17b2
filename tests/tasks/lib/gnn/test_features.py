"""Features that a network reads of a typed graph."""

import numpy as np

from superworkflow.tasks.lib.gnn.features import features_of, left_out, width_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.tasks.heterographs import Edges, Nodes, write_heterograph


def test_vectors_of_whole_numbers_are_read_and_single_ones_are_not(tmp_path):
    words, flags = np.array([[0, 3], [1, 0], [0, 0]], np.int64), np.array([[1, 0], [1, 1], [0, 0]], bool)
    given = {
        "words": words, "flags": flags, "size": np.array([0.5, 1.5, 2.5], np.float32), "name": ["a", "b", "c"],
        "year": np.array([1999, 2000, 7]),
    }  # fmt: skip
    graph = HeteroGraph.open(
        write_heterograph(
            tmp_path / "graph", {"paper": Nodes(list("abc"), given), "town": Nodes(["t"])},
            {"cites": Edges("paper", "paper", [("a", "b")])},
        )
    )  # fmt: skip
    matrix = features_of(graph, "paper")
    assert matrix.dtype == np.float32
    assert np.array_equal(matrix, np.column_stack([flags, [0.5, 1.5, 2.5], words]))
    assert width_of(graph, "paper") == 5
    assert features_of(graph, "town") is None
    assert "paper.year;" in left_out(graph)


def test_one_vector_of_whole_numbers_is_widened(tmp_path):
    words = np.array([[0, 3], [1, 0]], np.int8)
    nodes = {"paper": Nodes(list("ab"), {"words": words})}
    dataset = write_heterograph(tmp_path / "graph", nodes, {"cites": Edges("paper", "paper", [("a", "b")])})
    graph = HeteroGraph.open(dataset)
    matrix = features_of(graph, "paper")
    assert matrix.dtype == np.float32
    assert np.array_equal(matrix, words)
    assert left_out(graph) == ""
