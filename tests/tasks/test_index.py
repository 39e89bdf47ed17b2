"""The index stage against independent definitions: plain Python, SciPy, NetworkX, and its own relational form."""

import io
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from superworkflow.infra.contract.resources import Resources
from superworkflow.tasks.index import STAGE, IndexParams, estimate
from superworkflow.tasks.index.trim import kept_edges
from superworkflow.tasks.lib.edge_list.encode import BLOCK_BYTES
from superworkflow.tasks.lib.generators.edge_lists import generate
from superworkflow.tasks.lib.graph.csr import pack
from tests.tasks.index_helpers import Graph, read, run_index, run_stage

ENGINES = ("compiled", "relational")


def expected_arcs(rows, directed: bool, rule: str) -> dict[tuple[str, str], float]:
    """Simple graph of rows (u, v, w) in plain Python."""
    merge = {"sum": sum, "max": max, "min": min}[rule]
    found: dict[tuple[str, str], list[float]] = {}
    for u, v, w in rows:
        if u != v:
            pair = (u, v) if directed or u.encode() < v.encode() else (v, u)
            found.setdefault(pair, []).append(w)
    arcs = {pair: float(np.float32(merge(weights))) for pair, weights in found.items()}
    return arcs if directed else arcs | {(v, u): w for (u, v), w in arcs.items()}


def expected_order(labels: Iterable[str], arcs: dict[tuple[str, str], float], directed: bool) -> list[str]:
    degree = Counter(dict.fromkeys(labels, 0))
    degree.update(label for pair in arcs for label in (pair if directed else pair[:1]))
    return sorted(degree, key=lambda label: (-degree[label], label.encode()))


LABELS = st.one_of(
    st.integers(0, 12).map(str),
    st.sampled_from(
        ["007", "7", "a", "A", "ä", "日本", "a" * 15, "a" * 16, "a" * 16 + "b", "a" * 40, "x" * 8, "x" * 7, "-", "🙂"]
    ),
    st.text(
        st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters='"#%,;'), min_size=1, max_size=24
    ),
)
WEIGHTS = st.sampled_from([1.0, 0.5, 0.25, 2.0, 3.5, 1e-3, 1e6])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.tuples(LABELS, LABELS, WEIGHTS), min_size=1, max_size=60),
    directed=st.booleans(),
    weighted=st.booleans(),
    rule=st.sampled_from(["sum", "max", "min"]),
    cpu=st.sampled_from([1, 2]),
    engine=st.sampled_from(ENGINES),
)
def test_any_edge_list_becomes_its_simple_graph(rows, directed, weighted, rule, cpu, engine):
    arcs = expected_arcs(rows if weighted else [(u, v, 1.0) for u, v, _ in rows], directed, rule)
    if not arcs:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges.tsv"
        path.write_text("".join(f"{u}\t{v}" + (f"\t{w!r}" if weighted else "") + "\n" for u, v, w in rows))
        graph = run_index(
            path, engine, cpu=cpu, header=False, weighted=weighted, directed=directed, duplicates=rule, format="tsv"
        )
        assert graph.labels == expected_order((label for row in rows for label in row[:2]), arcs, directed)
        found = graph.arcs()
        assert found.keys() == arcs.keys()
        if weighted:
            assert found == pytest.approx(arcs, rel=1e-7)
        loops = sum(u == v for u, v, _ in rows)
        edges = len(arcs) if directed else len(arcs) // 2
        stats = graph.stats
        assert (stats["rows_read"], stats["self_loops_dropped"]) == (len(rows), loops)
        assert (stats["edges"], stats["directed_edges"]) == (edges, len(arcs))
        assert stats["duplicates_merged"] == len(rows) - loops - edges
        assert_well_formed(graph, directed)


def assert_well_formed(graph: Graph, directed: bool) -> None:
    matrix = graph.matrix()
    assert graph.indptr.dtype == np.int64
    assert graph.indices.dtype == np.int32
    for v in range(len(graph.labels)):
        assert (np.diff(graph.indices[graph.indptr[v] : graph.indptr[v + 1]]) > 0).all()
    lengths, into = np.diff(graph.indptr), np.bincount(graph.indices, minlength=len(graph.labels))
    np.testing.assert_array_equal(graph.degree, lengths + into if directed else lengths)
    if not directed:
        assert (matrix != matrix.T).nnz == 0


@pytest.fixture(scope="module")
def power_law(tmp_path_factory) -> Path:
    return generate(
        "chung-lu", 3000, 40_000, tmp_path_factory.mktemp("graph") / "g.csv", 3, prefix="node", exponent=2.1
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_equals_scipy_and_networkx(power_law, engine):
    graph = run_index(power_law, engine)
    pairs = [line.split(",") for line in power_law.read_text().splitlines()[1:]]
    reference = nx.Graph()
    reference.add_edges_from(pair for pair in pairs if pair[0] != pair[1])
    assert graph.stats["edges"] == reference.number_of_edges()
    assert graph.labels == sorted(reference, key=lambda label: (-reference.degree(label), label.encode()))
    number = {label: i for i, label in enumerate(graph.labels)}
    u, v = (np.array([number[pair[end]] for pair in pairs]) for end in (0, 1))
    adjacency = sp.coo_matrix((np.ones(len(u)), (u, v)), (len(number),) * 2).tocsr()
    adjacency = ((adjacency + adjacency.T) > 0).astype(np.float32)
    adjacency.setdiag(0)
    adjacency.eliminate_zeros()
    adjacency.sort_indices()
    np.testing.assert_array_equal(graph.indptr, adjacency.indptr)
    np.testing.assert_array_equal(graph.indices, adjacency.indices)


@pytest.mark.parametrize("directed", [False, True])
def test_engines_and_threads_write_the_same_bytes(tmp_path, directed):
    rng = np.random.default_rng(0)
    path = tmp_path / "g.tsv"
    ends = rng.zipf(1.3, (30_000, 2)) % 5000
    path.write_text(
        "".join(
            f"v{u}\t{v if v % 3 else 'v' + str(v)}\t{w}\n" for (u, v), w in zip(ends, rng.random(30_000), strict=True)
        )
    )
    options = {"directed": directed, "max_degree": 40, "header": False}
    graphs = [
        run_index(path, engine, cpu=cpu, **options)
        for engine, cpu in (("compiled", 1), ("compiled", 2), ("relational", 2))
    ]
    sums = [[(file.path, file.sha256) for file in graph.dataset.manifest.files] for graph in graphs]
    assert sums[0] == sums[1] == sums[2]
    assert graphs[0].stats == graphs[2].stats


def test_small_files_go_to_sql_and_large_ones_to_the_kernels_with_one_result(tmp_path):
    small = tmp_path / "small.txt"
    small.write_text("a b\nb c\n")
    assert run_index(small, "auto").arcs() == run_index(small, "compiled").arcs()


def test_a_file_of_several_blocks_with_rows_across_their_borders(tmp_path):
    path = tmp_path / "long.csv"
    labels = [f"{'label' * 20}{i}" for i in range(200)]
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 200, (int(2.4 * BLOCK_BYTES / 208), 2))
    path.write_text("\r\n".join(f"{labels[u]},{labels[v]}" for u, v in rows))
    graph = run_index(path, header=False)
    assert graph.stats["rows_read"] == len(rows)
    assert graph.stats["self_loops_dropped"] == (rows[:, 0] == rows[:, 1]).sum()
    assert sorted(graph.labels) == sorted(labels)


@pytest.mark.parametrize("directed", [False, True])
def test_max_degree_samples_the_neighbours_of_hubs(tmp_path, directed):
    path = tmp_path / "star.txt"
    star = [f"hub leaf{i}" for i in range(300)]
    path.write_text("\n".join([*star, "leaf0 leaf1", "leaf1 leaf2"]))
    whole = run_index(path, directed=directed)
    graphs = [run_index(path, directed=directed, max_degree=50, seed=seed) for seed in (0, 0, 1)]
    assert whole.stats["max_degree_seen"] == graphs[0].stats["max_degree_seen"] == 300
    for graph in graphs:
        assert graph.labels == whole.labels
        assert graph.arcs().keys() < whole.arcs().keys()
        assert np.diff(graph.indptr).max() == graph.stats["max_degree"] == 50
        assert graph.stats["trimmed_vertices"] == 1
        assert graph.stats["trimmed_edges"] == 250
        assert graph.stats["isolated_vertices"] == (graph.degree == 0).sum() > 200
        assert {("leaf0", "leaf1"), ("leaf1", "leaf2")} <= graph.arcs().keys()
        assert_well_formed(graph, directed)
    assert graphs[0].arcs() == graphs[1].arcs() != graphs[2].arcs()


def test_max_degree_draws_every_neighbour_alike():
    edges = pack(np.zeros(40, np.int64), np.arange(1, 41))
    degree = np.array([40] + [1] * 40)
    counts = sum(kept_edges(edges, degree, False, 10, seed).astype(int) for seed in range(400))
    assert counts.sum() == 4000
    # Without replacement the statistic is below chi-square with 39 degrees of freedom; 72.1 is its 99.9% point.
    assert ((counts - 100) ** 2 / 100).sum() < 72.1


def test_sum_is_in_the_order_of_rows_and_rounded_once(tmp_path):
    path = tmp_path / "w.txt"
    path.write_text("a b 0.1\nb a 0.2\na b 0.30000001\n")
    wanted = np.float32(np.float64(np.float32(0.1)) + np.float64(np.float32(0.2)) + np.float64(np.float32(0.30000001)))
    for engine in ENGINES:
        assert set(run_index(path, engine).arcs().values()) == {float(wanted)}


def test_weights_are_the_nearest_float32(tmp_path):
    rng = np.random.default_rng(5)
    values = np.concatenate([rng.random(3000), 10.0 ** rng.uniform(-30, 30, 3000), rng.integers(1, 10**9, 1000)])
    path = tmp_path / "w.txt"
    path.write_text("".join(f"a {i} {float(value)!r}\n" for i, value in enumerate(values)))
    graph = run_index(path, weighted=True)
    found = graph.arcs()
    for i, value in enumerate(values):
        assert found["a", str(i)] == float(np.float32(value))


def test_estimate_predicts_size_and_memory(tmp_path):
    path = generate("chung-lu", 30_000, 600_000, tmp_path / "g.txt", 1)
    graph = run_index(path)
    guess = estimate(IndexParams(), {"edges": {"bytes": path.stat().st_size}}, Resources(cpu=2))
    assert guess.stats["edges"] == pytest.approx(graph.stats["edges"], rel=0.3)
    assert guess.output_bytes == pytest.approx(graph.stats["bytes"], rel=0.3)
    assert guess.stats.keys() <= graph.stats.keys()


def test_the_log_says_how_the_file_is_read(tmp_path):
    path, log = tmp_path / "g.csv", io.StringIO()
    path.write_text("from,to,weight\na,b,2\n")
    run_index(path, log=log)
    assert "csv, with header; source = from, target = to, weight = weight" in log.getvalue()


def test_a_dataset_reads_back_as_manifest_says(tmp_path):
    path = tmp_path / "g.txt"
    path.write_text("a b\n")
    dataset = run_stage(STAGE, {}, {"edges": str(path)}, tmp_path / "out")
    assert dataset.files() == ["indices.npy", "indptr.npy", "vertices.parquet"]
    dataset.verify()
    assert read(dataset).labels == ["a", "b"]
    assert dataset.stats["bytes"] == dataset.manifest.bytes
