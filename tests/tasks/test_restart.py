"""Runs of vertex programs that start from an earlier one: as a cold run, in fewer updates."""

import io
import shutil
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from superworkflow.flows import load_superworkflow
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.vertex.vertex_names import graph_before
from tests.tasks.index_helpers import run_stage
from tests.tasks.test_factors import trees, uai
from tests.tasks.test_lattice import volume


class Store:
    """Runs stages so that each dataset has its place in one store."""

    def __init__(self, folder: Path):
        self.folder, self.log = folder, io.StringIO()

    def run(self, stage: str, inputs: dict[str, Any], **params: Any) -> Dataset:
        given = {name: each.uri if isinstance(each, Dataset) else str(each) for name, each in inputs.items()}
        made = run_stage(load_stage(stage), params, given, self.folder / stage / "made", 1, self.log)
        place = self.folder / stage / made.digest
        if place.exists():
            shutil.rmtree(self.folder / stage / "made")
            return Dataset.open(place)
        return Dataset.open((self.folder / stage / "made").rename(place))

    def program(
        self, name: str, graph: Dataset, initial: Dataset | None = None, table: Path | None = None, **params: Any
    ) -> Dataset:
        inputs = {"graph": graph, "colours": self.run("colour", {"graph": graph})}
        if table is not None:
            inputs["table"] = self.run("vertex_fields", {"graph": graph, "table": table})
        if initial is not None:
            inputs |= {"initial": initial, "before": graph_before(initial)}
        return self.run(name, inputs, **params)

    def edges(self, graph: nx.Graph, name: str) -> Dataset:
        path = self.folder / f"{name}.txt"
        rows = (f"n{u} n{v} {data.get('weight', 1)}\n" for u, v, data in graph.edges(data=True))
        path.write_text("".join(rows))
        return self.run("index", {"edges": path}, directed=graph.is_directed(), weighted=True)


def changed(graph: nx.Graph, seed: int) -> nx.Graph:
    """The graph with some edges and nodes fewer, some more, and others of another weight."""
    rng, other = np.random.default_rng(seed), graph.copy()
    edges = list(graph.edges)
    for number in rng.choice(len(edges), 6, replace=False):
        other.remove_edge(*edges[number])
    other.remove_node(int(rng.integers(1, 100)))
    for new in range(1000, 1003):
        other.add_edge(new, int(rng.choice([each for each in other if each < 100])), weight=0.5)
    for u, v in list(other.edges)[:6]:
        other[u][v]["weight"] = float(np.float32(rng.uniform(0.1, 5)))
    other.remove_nodes_from(list(nx.isolates(other)))
    return other


def values(dataset: Dataset, name: str) -> np.ndarray:
    return np.concatenate([dataset.array(file) for file in dataset.files(f"{name}-*.npy")])


@pytest.mark.parametrize(
    ("directed", "seed"), [(False, 0), pytest.param(True, 1, marks=pytest.mark.slow)], ids=["undirected", "directed"]
)
def test_changed_graphs(tmp_path: Path, directed: bool, seed: int) -> None:
    store, rng = Store(tmp_path), np.random.default_rng(seed)
    graph = nx.gnp_random_graph(300, 0.006 if directed else 0.008, seed=seed, directed=directed)
    for _, _, data in graph.edges(data=True):
        data["weight"] = float(np.float32(rng.uniform(0.1, 5)))
    graph.remove_nodes_from(list(nx.isolates(graph)))
    now = changed(graph, seed)
    source = max(set(graph) & set(now), key=graph.degree)
    before, after = store.edges(graph, "before"), store.edges(now, "after")
    fields = {
        "pagerank": ("rank", {}),
        "components": ("component", {"execution": "consistent"}),
        "sssp": ("distance", {"source": f"n{source}"}),
    }
    for name, (field, params) in fields.items():
        cold, warm = (
            store.program(name, after, initial, **params) for initial in (None, store.program(name, before, **params))
        )
        assert cold.digest != warm.digest
        assert warm.stats["updates"] <= cold.stats["updates"]
        assert values(warm, field) == pytest.approx(values(cold, field), abs=1e-9 if name == "pagerank" else 0), name
        again = store.program(name, after, cold, **params)
        assert again.stats["updates"] <= (len(now) if name == "pagerank" else 0)


def test_labels_that_change(tmp_path: Path) -> None:
    store, rng = Store(tmp_path), np.random.default_rng(0)
    graph = nx.disjoint_union(nx.connected_watts_strogatz_graph(300, 4, 0.1, seed=1), nx.path_graph(5))
    now = changed(graph, 3)
    tables = []
    for number, (each, kinds) in enumerate(((graph, "abc"), (now, "bcd"))):
        labelled = [node for node in sorted(each)[::10] if node < 295 + number]  # the path is reached by none at first
        rows = [f"n{node},{kinds[node % 3] if rng.random() < 0.9 else kinds[0]}\n" for node in labelled]
        tables.append(tmp_path / f"{number}.csv")
        tables[-1].write_text("node,label\n" + "".join(rows))
    before, after = store.edges(graph, "before"), store.edges(now, "after")
    first = store.program("label_propagation", before, table=tables[0], threshold=1e-9)
    cold, warm = (
        store.program("label_propagation", after, initial, tables[1], threshold=1e-9) for initial in (None, first)
    )
    assert values(warm, "share") == pytest.approx(values(cold, "share"), abs=1e-6)
    assert warm.stats["updates"] <= cold.stats["updates"]
    back = store.program("label_propagation", before, cold, tables[0], threshold=1e-9)
    assert values(back, "share") == pytest.approx(values(first, "share"), abs=1e-6)
    assert values(back, "predicted")[values(first, "predicted") < 0].max(initial=-1) == -1


def test_changed_voxels(tmp_path: Path) -> None:
    """The issue's volume has 100³ voxels, of which 0.1% change: 191 times fewer updates."""
    store, rng = Store(tmp_path), np.random.default_rng(0)
    _, noisy = volume(30, labels=3)
    other = noisy.copy()
    other.reshape(-1)[rng.choice(noisy.size, 20, replace=False)] = 1
    lattices = []
    for name, each in (("before", noisy), ("after", other)):
        np.save(tmp_path / f"{name}.npy", each)
        lattices.append(store.run("grid", {"lattice": tmp_path / f"{name}.npy"}))
    first = store.program("bp", lattices[0])
    cold, warm = (store.program("bp", lattices[1], initial) for initial in (None, first))
    assert np.abs(values(cold, "belief") - values(warm, "belief")).max() < 0.02
    assert warm.stats["updates"] < cold.stats["updates"] / 50
    assert store.program("bp", lattices[0], first).stats["updates"] == 0
    smoother = store.program("bp", lattices[0], first, smoothing=5.0)
    assert smoother.stats["updates"] > noisy.size  # all is looked at anew
    np.save(tmp_path / "smaller.npy", noisy[:-1])
    smaller = store.run("grid", {"lattice": tmp_path / "smaller.npy"})
    with pytest.raises(UserError, match=r"another shape .got '30,30,30, now 29,30,30'"):
        store.program("bp", smaller, first)


def test_changed_factors(tmp_path: Path) -> None:
    store = Store(tmp_path)
    states, found = trees(8, 6, seed=3)
    models = []
    for name in ("before", "after"):
        (tmp_path / f"{name}.uai").write_text(uai(states, [factor for tree in found for factor in tree]))
        models.append(store.run("factor_graph", {"factors": tmp_path / f"{name}.uai"}))
        found[0] = [(scope, table * np.linspace(1, 2, table.size).reshape(table.shape)) for scope, table in found[0]]
        found[1] = found[1][:1] + found[1][2:]
    first = store.program("bp", models[0])
    cold, warm = (store.program("bp", models[1], initial) for initial in (None, first))
    assert np.abs(values(cold, "belief") - values(warm, "belief")).max() < 1e-8
    assert warm.stats["updates"] < cold.stats["updates"] / 2


def test_refuses(tmp_path: Path) -> None:
    store = Store(tmp_path)
    graph, other = (store.edges(each, str(len(each))) for each in (nx.path_graph(5), nx.path_graph(range(20, 24))))
    ranks = store.program("pagerank", graph)
    with pytest.raises(UserError, match=r"the earlier run is of another program .got 'pagerank'"):
        store.program("components", graph, ranks, execution="consistent")
    with pytest.raises(UserError, match="no vertex in common"):
        store.program("pagerank", other, ranks)
    with pytest.raises(UserError, match=r"another source, so that its values say nothing here .got 'n1'"):
        store.program("sssp", graph, store.program("sssp", graph, source="n1"), source="n2")
    inputs = {"graph": graph, "colours": store.run("colour", {"graph": graph}), "initial": ranks, "before": other}
    with pytest.raises(UserError, match="this is not the graph of the earlier run"):
        store.run("pagerank", inputs)
    (tmp_path / "index" / graph.digest).rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="the graph of the earlier run is not in its store"):
        graph_before(ranks)
    assert "initial" not in load_superworkflow("gibbs").sources
