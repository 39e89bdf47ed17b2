"""Edges of an edge list with their times, and directed ones."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from superworkflow.flows import load_superworkflow
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.request import build_request
from superworkflow.tasks.heterograph import STAGE
from superworkflow.tasks.holdout_links import STAGE as HOLDOUT_LINKS
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.subgraphs.blocks import read_blocks
from superworkflow.tasks.sample import STAGE as SAMPLE
from tests.tasks.index_helpers import run_stage
from tests.tasks.test_edge_times import CUT, rows_of, write

Edge = tuple[str, str, float, int]


def made(folder: Path, path: Path, **params: object) -> HeteroGraph:
    return HeteroGraph.open(run_stage(STAGE, params, {"edges": str(path)}, folder / "graph"))


def edges_of(graph: HeteroGraph, name: str = "edge") -> Counter[Edge]:
    ids = graph.ids("node").to_pylist()
    indptr, indices = graph.rows(name)
    starts = np.repeat(np.arange(len(ids)), np.diff(indptr))
    weights, times = (graph.edge_feature(name, each) for each in ("weight", "timestamp"))
    found = zip(starts, indices, weights.tolist(), times.tolist(), strict=True)
    return Counter((ids[u], ids[v], weight, time) for u, v, weight, time in found)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_each_row_is_an_edge_with_its_time(tmp_path: Path, kind: str, directed: bool) -> None:
    rows = [*rows_of(), *rows_of()[:5]]
    graph = made(tmp_path, write(tmp_path / f"edges.{kind}", "dates", rows), time="auto", directed=directed)
    there = Counter((u, v, float(w), time) for u, v, w, time in rows if u != v)
    back = Counter({(v, u, w, time): count for (u, v, w, time), count in there.items()})
    assert list(graph.edge_sets) == (["edge", "reverse_edge"] if directed else ["edge"])
    assert edges_of(graph) == (there if directed else there + back)
    if directed:
        assert edges_of(graph, "reverse_edge") == back
    assert graph.dataset.stats["reversed_edges"] == there.total()
    first = made(tmp_path / "first", tmp_path / f"edges.{kind}", time="time", directed=directed, parallel_edges="first")
    pairs = {(u, v) for u, v, *_ in (there if directed else there + back)}
    assert sorted((u, v) for u, v, *_ in edges_of(first).elements()) == sorted(pairs)


def test_a_cut_without_kept_times_merges_as_before(tmp_path: Path) -> None:
    path = write(tmp_path / "edges.csv", "seconds", rows_of())
    cut = made(tmp_path, path, from_time=str(CUT[0]), until=str(CUT[1]))
    inside = [row for row in rows_of() if CUT[0] <= row[3] < CUT[1]]
    plain = made(tmp_path / "plain", write(tmp_path / "inside.csv", "seconds", inside))
    assert cut.dataset.manifest.files == plain.dataset.manifest.files
    assert "heterograph.time=time" in plain.dataset.stats["input_warning.1"]
    assert "input_warning.1" not in cut.dataset.stats


def test_direction_alone_merges_equal_edges(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target,weight\nb,a,1\na,b,2\nb,c,1\nb,c,4\nc,c,1\n")
    graph = made(tmp_path, tmp_path / "edges.csv", directed=True)
    assert graph.rows("edge").indices.tolist() == [1, 0, 2]
    assert graph.rows("reverse_edge").indices.tolist() == [1, 0, 1]
    assert graph.edge_feature("edge", "weight").tolist() == [2, 1, 5]


def test_rows_without_an_id_are_dropped_with_their_times(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target,time\na,b,1\n,b,2\nb,NULL,3\nc,b,4\n")
    graph = made(tmp_path, tmp_path / "edges.csv", time="time", missing="drop", directed=True)
    assert graph.edge_feature("edge", "timestamp").tolist() == [1, 4]
    assert graph.dataset.stats["missing_dropped"] == 2


def test_triples_keep_times(tmp_path: Path) -> None:
    text = "head,relation,tail,date\na,knows,b,1970-01-02\nb,knows,a,1970-01-01\na,meets,b,1970-01-03\n"
    (tmp_path / "kg.csv").write_text(text)
    graph = made(tmp_path, tmp_path / "kg.csv", format="triples", time="auto", until="1970-01-03")
    assert list(graph.edge_sets) == ["knows", "reverse_knows"]
    assert graph.edge_feature("knows", "timestamp").tolist() == [86400, 0]


def test_errors_name_own_parameters(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("a b\nb c\n")
    with pytest.raises(UserError, match=r"no column of times is found.*Set heterograph.time"):
        made(tmp_path, tmp_path / "edges.txt", time="auto")


def test_subgraphs_sample_the_latest_edges_that_are_not_after_the_seed(tmp_path: Path) -> None:
    rows = rows_of()
    graph = made(tmp_path, write(tmp_path / "edges.csv", "seconds", rows), time="auto")
    spec, seeds = tmp_path / "spec.pbtxt", tmp_path / "seeds.csv"
    spec.write_text(
        'seed_op { op_name: "seed" node_set_name: "node" } sampling_ops { op_name: "near" input_op_names: "seed" '
        'edge_set_name: "edge" sample_size: 3 strategy: LATEST_K }'
    )
    names = graph.ids("node").to_pylist()
    seeds.write_text("id,timestamp,split\n" + "".join(f"{name},{CUT[0]},train\n" for name in names))
    inputs = {"graph": graph.dataset.uri, "spec": str(spec), "seeds": str(seeds)}
    drawn = run_stage(SAMPLE, {}, inputs, tmp_path / "drawn")
    times = graph.edge_feature("edge", "timestamp")
    indptr = graph.rows("edge").indptr
    found: dict[int, list[int]] = {number: [] for number in range(len(names))}
    for block in read_blocks(drawn, "train"):
        for place in block.positions[0]:
            found[int(np.searchsorted(indptr, place, "right")) - 1].append(int(times[place]))
    for number, name in enumerate(names):
        early = [time for u, v, _, time in rows if name in (u, v) and u != v and time <= CUT[0]]
        assert sorted(found[number]) == sorted(early)[-3:]


def test_the_flow_takes_an_edge_list_or_triples(tmp_path: Path) -> None:
    chosen, spec = load_superworkflow("subgraphs"), tmp_path / "spec.pbtxt"
    spec.write_text('seed_op { op_name: "seed" node_set_name: "node" }')
    (tmp_path / "kg.tsv").write_text("a\tknows\tb\nb\tmeets\tc\n")
    given = {"edges": str(tmp_path / "kg.tsv"), "spec": str(spec)}
    request = build_request(
        chosen, sources=given, store=str(tmp_path), parameters={"heterograph": {"format": "triples"}}
    )
    assert [node.stage.name for node in request.diagram.nodes.values()] == ["heterograph", "sample", "records"]
    with pytest.raises(UserError, match=r"subgraphs needs exactly one graph.*Give either --graph FILE or --edges FILE"):
        build_request(chosen, sources=given | {"graph": str(tmp_path / "kg.tsv")}, store=str(tmp_path))


@pytest.mark.parametrize("directed", [False, True])
def test_links_are_held_out_with_all_their_edges(tmp_path: Path, directed: bool) -> None:
    """A pair may have edges of several times, in either direction; none of them passes messages."""
    graph = made(tmp_path, write(tmp_path / "edges.csv", "seconds", rows_of()), time="auto", directed=directed)
    given = {"graph": graph.dataset.uri}
    rest = HeteroGraph.open(run_stage(HOLDOUT_LINKS, {"test_share": 0.3}, given, tmp_path / "rest"))
    hidden = {frozenset(pair) for pair in rest.dataset.array("links-test.npy").tolist()}
    assert len(hidden) > 50
    names = graph.ids("node").to_pylist()
    for name in rest.edge_sets:
        left = edges_of(rest, name)
        hides = [frozenset((names.index(u), names.index(v))) in hidden for u, v, *_ in left]
        assert not any(hides)
        assert left <= edges_of(graph, name)
