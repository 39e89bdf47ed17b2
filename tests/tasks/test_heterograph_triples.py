"""Triples head, relation, tail as one edge set a relation."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.heterograph import STAGE
from superworkflow.tasks.heterograph.triples import MOST_RELATIONS
from superworkflow.tasks.holdout_links import STAGE as HOLDOUT_LINKS
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.lib.edge_list.edge_files import detected_warnings
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.tasks.index_helpers import run_stage

TRIPLES = "00260622\t_hypernym\t00260881\n00260881\t_hypernym\t00001740\n00001740\tpart of\t00260622\n"


def made(folder: Path, path: Path, **inputs: Path) -> HeteroGraph:
    given = {"edges": str(path)} | {name: str(each) for name, each in inputs.items()}
    return HeteroGraph.open(run_stage(STAGE, {"format": "triples"}, given, folder / "graph"))


def edges_of(graph: HeteroGraph, name: str) -> set[tuple[str, str]]:
    ids = graph.ids("node").to_pylist()
    indptr, indices = graph.rows(name)
    return {(ids[i], ids[j]) for i in range(len(ids)) for j in indices[indptr[i] : indptr[i + 1]]}


@pytest.mark.parametrize("form", ["tsv", "csv", "parquet"])
def test_an_edge_set_for_each_relation(tmp_path: Path, form: str) -> None:
    path, rows = tmp_path / f"kg.{form}", [line.split("\t") for line in TRIPLES.splitlines()]
    if form == "parquet":
        pq.write_table(
            pa.table([pa.array(each) for each in zip(*rows, strict=True)], ["head", "relation", "tail"]), path
        )
    else:
        path.write_text(
            TRIPLES if form == "tsv" else "tail,head,relation\n" + "".join(f"{t},{h},{r}\n" for h, r, t in rows)
        )
    graph = made(tmp_path, path)
    assert graph.ids("node").to_pylist() == ["00001740", "00260622", "00260881"]
    assert sorted(graph.edge_sets) == ["hypernym", "part_of", "reverse_hypernym", "reverse_part_of"]
    assert edges_of(graph, "hypernym") == {("00260622", "00260881"), ("00260881", "00001740")}
    assert edges_of(graph, "reverse_part_of") == {("00260622", "00001740")}


def test_the_column_of_relations_is_read_and_others_are_doubted(tmp_path: Path) -> None:
    path, rows = tmp_path / "kg.tsv", [f"n{i}\tr{i % 3}\tn{i + 1}\tw{i}" for i in range(30)]
    path.write_text("\n".join(row.rpartition("\t")[0] for row in rows))
    assert not doubts_of(path)
    path.write_text("\n".join(rows))
    (doubt,) = doubts_of(path)
    assert "column 4: a column of text is not used" in doubt


def doubts_of(path: Path) -> list[str]:
    return [str(each) for each in detected_warnings(Source.of(path), IndexParams(format="triples"))]


def test_features_and_labels_name_the_nodes(tmp_path: Path) -> None:
    path, features, labels = tmp_path / "kg.tsv", tmp_path / "f.csv", tmp_path / "l.csv"
    path.write_text(TRIPLES)
    features.write_text("node,x\n00260881,3\n00001740,1\n00260622,2\nalone,4\n")
    labels.write_text("node,label\n00260622,verb\n00001740,noun\n")
    graph = made(tmp_path, path, features=features, labels=labels)
    assert graph.node_feature("node", "features").tolist() == [[1], [2], [3], [4]]
    assert graph.node_feature("node", "label").to_pylist() == [b"noun", b"verb", b"", b""]
    assert graph.dataset.stats["labelled"] == 2
    features.write_text("node,x\n00260881,3\n")
    with pytest.raises(UserError, match=r"triples name nodes without features.*2 nodes"):
        run_stage(STAGE, {"format": "triples"}, {"edges": str(path), "features": str(features)}, tmp_path / "again")


def test_refused(tmp_path: Path) -> None:
    path = tmp_path / "kg.tsv"
    path.write_text("a\tlikes\tb\nb\t\tc\n")
    with pytest.raises(UserError, match=r"line 2.*empty relation|empty relation.*line 2"):
        made(tmp_path, path)
    path.write_text("".join(f"a\tr{number}\tb\n" for number in range(MOST_RELATIONS + 1)))
    with pytest.raises(UserError, match="more than 1000 relations"):
        made(tmp_path, path)
    path.write_text("a\tlikes\tb\nb\tlikes\tc\nc\thates\ta\na\thates\tb\n")
    with pytest.raises(UserError, match=r"heterograph\.format=triples"):
        run_stage(STAGE, {}, {"edges": str(path)}, tmp_path / "plain")


def test_umls(tmp_path: Path, shared_data: Path) -> None:
    graph = made(tmp_path, shared_data / "formats" / "umls-train.txt")
    relations = [each for each in graph.edge_sets.values() if each.reversed_of is None]
    assert (graph.node_sets["node"].count, len(relations)) == (135, 46)
    assert sum(each.count for each in relations) == 5216
    assert len(graph.edge_sets) == 92
    largest = max(relations, key=lambda each: each.count).name
    held = run_stage(HOLDOUT_LINKS, {"edges": largest}, {"graph": graph.dataset.uri}, tmp_path / "held")
    assert held.stats["test_links"] > 0
