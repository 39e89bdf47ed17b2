"""Shipped programs against networkx, and their stages."""

import io
import subprocess
import sys
from collections import Counter
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from superworkflow.flows import load_superworkflow
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources, Workers
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from superworkflow.tasks.colour import STAGE as COLOUR
from superworkflow.tasks.index import STAGE as INDEX
from superworkflow.tasks.lib.vertex.run import ChromaticEngine
from superworkflow.tasks.publish_fields import STAGE as PUBLISH
from tests.tasks.index_helpers import run_stage
from tests.tasks.lib.vertex.graphs import coloured, graph_of

PROGRAMS = ["pagerank", "components", "sssp", "kcore"]


def edges_of(graph: nx.Graph, path: Path, weighted: bool = False) -> Path:
    rows = (f"n{u} n{v}" + (f" {data.get('weight', 1)}" if weighted else "") for u, v, data in graph.edges(data=True))
    path.write_text("".join(row + "\n" for row in rows))
    return path


def values_of(
    name: str, edges: Path, folder: Path, cpu: int = 1, index: dict | None = None, **params: object
) -> Dataset:
    """Field of each node, by the stages of the program's superworkflow."""
    graph = run_stage(INDEX, index or {}, {"edges": str(edges)}, folder / "index")
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, folder / "colour")
    inputs = {"graph": graph.uri, "colours": colours.uri}
    values = run_stage(load_stage(name), params, inputs, folder / name, cpu, io.StringIO())
    return run_stage(PUBLISH, {}, {"graph": graph.uri, "values": values.uri}, folder / "published")


def table(dataset: Dataset, field: str) -> dict[int, float]:
    rows = dataset.table("vertices.parquet").to_pylist()
    return {int(row["node"][1:]): row[field] for row in rows}


def test_distances_take_the_shortest_of_several_rows(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("source,target,weight\nn0,n1,2\nn1,n0,2\nn0,n1,9\nn1,n2,3\n")
    read = load_superworkflow("sssp").stages[0].params().model_dump()
    found = values_of("sssp", tmp_path / "e.csv", tmp_path, index=read, source="n0")
    assert table(found, "distance") == {0: 0.0, 1: 2.0, 2: 5.0}


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_pagerank(tmp_path: Path, directed: bool, weighted: bool) -> None:
    graph = nx.gnp_random_graph(300, 0.01, seed=1, directed=directed)
    graph.remove_nodes_from(list(nx.isolates(graph)))
    rng = np.random.default_rng(0)
    for _, _, data in graph.edges(data=True):
        data["weight"] = float(np.float32(rng.uniform(0.1, 5))) if weighted else 1.0
    edges = edges_of(graph, tmp_path / "e.txt", weighted)
    made = values_of("pagerank", edges, tmp_path, index={"directed": directed}, tolerance=1e-14)
    expected = nx.pagerank(graph, tol=1e-15, max_iter=10_000)
    found = table(made, "rank")
    assert max(abs(found[node] - expected[node]) for node in graph) < 1e-9


def test_components(tmp_path: Path) -> None:
    graph = nx.gnp_random_graph(400, 0.004, seed=2)
    graph.remove_nodes_from(list(nx.isolates(graph)))
    edges, written = edges_of(graph, tmp_path / "e.txt"), []
    for execution in ("union_find", "consistent"):
        found = table(values_of("components", edges, tmp_path / execution, execution=execution), "component")
        for component in nx.connected_components(graph):
            assert len({found[node] for node in component}) == 1
        assert len(set(found.values())) == nx.number_connected_components(graph)
        folder = tmp_path / execution / "components"
        written.append([(folder / name).read_bytes() for name in ("component-00000.npy", "globals.json")])
    assert written[0] == written[1]


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_sssp(tmp_path: Path, directed: bool) -> None:
    graph = nx.gnp_random_graph(200, 0.02, seed=3, directed=directed)
    rng = np.random.default_rng(0)
    for _, _, data in graph.edges(data=True):
        data["weight"] = float(np.float32(rng.uniform(0.1, 5)))
    source = next(iter(graph.edges))[0]
    made = values_of("sssp", edges_of(graph, tmp_path / "e.txt", weighted=True), tmp_path, index={"directed": directed},
                     source=f"n{source}")  # fmt: skip
    expected = nx.single_source_dijkstra_path_length(graph, source)
    for node, distance in table(made, "distance").items():
        assert distance == pytest.approx(expected.get(node, np.inf), rel=1e-12)


def test_kcore(tmp_path: Path) -> None:
    graph = nx.barabasi_albert_graph(400, 5, seed=4)
    edges, expected, written = edges_of(graph, tmp_path / "e.txt"), nx.core_number(graph), []
    for execution in ("peeling", "consistent"):
        assert table(values_of("kcore", edges, tmp_path / execution, execution=execution), "core") == expected
        folder = tmp_path / execution / "kcore"
        written.append([(folder / name).read_bytes() for name in ("core-00000.npy", "globals.json")])
    assert written[0] == written[1]
    steps = Dataset.open(str(folder.parent.parent / "peeling/kcore")).table("trace.parquet").to_pydict()
    assert dict(zip(steps["step"], steps["updates"], strict=True)) == Counter(expected.values())
    assert sum(steps["arcs"]) == 2 * graph.number_of_edges()


def test_a_source_that_is_no_node(tmp_path: Path) -> None:
    edges = edges_of(nx.path_graph(4), tmp_path / "e.txt")
    with pytest.raises(UserError, match=r"sssp\.source: the graph has no such node .got 'n9'"):
        values_of("sssp", edges, tmp_path, source="n9")


def test_colours_of_another_graph(tmp_path: Path) -> None:
    graphs, by_program = [], {"execution": "consistent"}
    for size in (4, 5):
        edges = edges_of(nx.path_graph(size), tmp_path / f"{size}.txt")
        graphs.append(run_stage(INDEX, {}, {"edges": str(edges)}, tmp_path / f"index{size}").uri)
    colours = run_stage(COLOUR, {}, {"graph": graphs[0]}, tmp_path / "colours").uri
    with pytest.raises(UserError, match=r"not those of this graph and consistency .got '4 vertices, distance 1'"):
        run_stage(load_stage("components"), by_program, {"graph": graphs[1], "colours": colours}, tmp_path / "made")
    plain = run_stage(COLOUR, {"distance": 0}, {"graph": graphs[0]}, tmp_path / "plain").uri
    with pytest.raises(UserError, match=r"colour\.distance=1"):
        run_stage(load_stage("components"), by_program, {"graph": graphs[0], "colours": plain}, tmp_path / "made")


def test_union_find_is_for_one_process(tmp_path: Path) -> None:
    edges = edges_of(nx.path_graph(4), tmp_path / "e.txt")
    graph = {"graph": run_stage(INDEX, {}, {"edges": str(edges)}, tmp_path / "index").uri}
    resources = Resources(cpu=1, memory=4 << 30, workers={"worker": Workers(count=2, cpu=1, memory=1 << 30)})
    given = load_stage("components"), {}, graph, str(tmp_path / "made"), resources
    with pytest.raises(UserError, match=r"execution: this is for one process .got .union_find.*consistent"):
        execute(*given, Progress("components", stream=io.StringIO()), engine="workers")
    with pytest.raises(UserError, match=r"needs the colours.*consistent.*union_find"):
        run_stage(load_stage("components"), {"execution": "consistent"}, graph, tmp_path / "other")


@pytest.mark.parametrize("name", PROGRAMS)
def test_superworkflows(name: str) -> None:
    found = load_superworkflow(name)
    assert [stage.name for stage in found.stages] == ["index", "colour", name, "publish_fields"]


def test_a_second_process_compiles_nothing() -> None:
    from superworkflow.tasks.components.program import PROGRAM

    ChromaticEngine(PROGRAM, PROGRAM.params(), coloured(graph_of([(0, 1)], 2), 1)).run()
    code = """
from superworkflow.infra.process.compile_clock import clock
from superworkflow.tasks.components.program import PROGRAM
from superworkflow.tasks.lib.vertex.run import ChromaticEngine
from tests.tasks.lib.vertex.graphs import coloured, graph_of
graph = coloured(graph_of([(0, 1)], 2), 1)
clock.reset()
ChromaticEngine(PROGRAM, PROGRAM.params(), graph).run()
print(clock.seconds[0])"""
    assert float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout) == 0.0


def test_a_program_of_ones_own() -> None:
    found = load_superworkflow(str(Path(__file__).parents[4] / "examples/heat.py"))
    assert found.name == "heat"
    assert "heat" in found.own
    assert found is not None
