"""Random graphs: counts, distributions, formats, the same file again."""

import gzip

import numpy as np
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.generators import edge_lists
from superworkflow.tasks.lib.generators.edge_lists import generate


def pairs_of(path, separator=",") -> np.ndarray:
    lines = path.read_text().splitlines()
    return np.array([line.split(separator) for line in lines if not line.startswith("source")], np.int64)


def test_er_edges_are_distinct_and_uniform(tmp_path):
    path = generate("er", 60, 600, tmp_path / "g.csv", 1)
    counts = np.zeros((60, 60))
    for seed in range(40):
        pairs = np.sort(pairs_of(generate("er", 60, 600, path, seed)), axis=1)
        assert len(np.unique(pairs, axis=0)) == 600
        assert (pairs[:, 0] < pairs[:, 1]).all()
        assert 0 <= pairs.min() <= pairs.max() < 60
        np.add.at(counts, tuple(pairs.T), 1)
    observed = counts[np.triu_indices(60, 1)]
    expected = 40 * 600 / 1770
    # Binomial variance is less than Poisson's by the share drawn; 1769 degrees of freedom, ± 4 sigma.
    statistic = ((observed - expected) ** 2 / (expected * (1 - 600 / 1770))).sum()
    assert abs(statistic - 1769) < 4 * np.sqrt(2 * 1769)


def test_er_can_make_the_complete_graph(tmp_path):
    pairs = np.sort(pairs_of(generate("er", 23, 253, tmp_path / "g.csv")), axis=1)
    assert {tuple(pair) for pair in pairs.tolist()} == {(u, v) for v in range(23) for u in range(v)}


@pytest.mark.parametrize("exponent", [2.2, 2.5, 3.0])
def test_chung_lu_degrees_follow_the_power_law(tmp_path, exponent):
    nodes, edges = 50_000, 400_000
    pairs = pairs_of(generate("chung-lu", nodes, edges, tmp_path / "g.csv", 2, exponent=exponent))
    assert (pairs[:, 0] != pairs[:, 1]).all()
    degree = np.sort(np.bincount(pairs.ravel(), minlength=nodes))[::-1]
    assert degree.sum() == 2 * edges
    assert degree[0] < 1.3 * np.sqrt(2 * edges)
    # Hill's estimate of the exponent over the middle of the tail.
    tail = degree[degree >= 3 * degree.mean()][500:]
    slope = np.polyfit(np.log(np.arange(501, 501 + len(tail))), np.log(tail), 1)[0]
    assert slope == pytest.approx(-1 / (exponent - 1), abs=0.12)


@pytest.mark.parametrize("model", ["er", "chung-lu"])
def test_the_same_file_for_the_same_seed_and_any_chunk(tmp_path, model, monkeypatch):
    one = generate(model, 500, 3000, tmp_path / "1.tsv.gz", 7).read_bytes()
    assert generate(model, 500, 3000, tmp_path / "2.tsv.gz", 7).read_bytes() == one
    assert generate(model, 500, 3000, tmp_path / "3.tsv.gz", 8).read_bytes() != one
    reported = []
    monkeypatch.setattr(edge_lists, "CHUNK_EDGES", 700)
    path = generate(model, 500, 3000, tmp_path / "4.tsv.gz", 7, progress=lambda *counts: reported.append(counts))
    assert gzip.decompress(path.read_bytes()) == gzip.decompress(one)
    assert reported == [(700, 3000), (1400, 3000), (2100, 3000), (2800, 3000), (3000, 3000)]


def test_formats_hold_the_same_edges(tmp_path):
    wanted = pairs_of(generate("er", 1000, 2000, tmp_path / "g.csv", 3)).tolist()
    assert (tmp_path / "g.csv").read_text().startswith("source,target\n")
    assert pairs_of(generate("er", 1000, 2000, tmp_path / "g.tsv", 3), "\t").tolist() == wanted
    assert pairs_of(generate("er", 1000, 2000, tmp_path / "g.txt", 3), " ").tolist() == wanted
    table = pq.read_table(generate("er", 1000, 2000, tmp_path / "g.parquet", 3))
    assert np.array([table["source"], table["target"]]).T.tolist() == wanted
    table = pq.read_table(generate("er", 1000, 2000, tmp_path / "p.parquet", 3, prefix="n"))
    assert [[u, v] for u, v in zip(*table.to_pydict().values(), strict=True)] == [[f"n{u}", f"n{v}"] for u, v in wanted]
    text = generate("er", 1000, 2000, tmp_path / "p.txt", 3, prefix="n").read_text()
    assert text.splitlines() == [f"n{u} n{v}" for u, v in wanted]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"model": "ba"}, "model"), ({"nodes": 1}, "nodes"), ({"edges": 0}, "edges"), ({"edges": 46}, "edges"),
        ({"exponent": 2.0}, "exponent"), ({"prefix": "a b"}, "prefix"), ({"path": "g.xlsx"}, "g.xlsx"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(tmp_path, change, where):
    given = {"model": "chung-lu", "nodes": 10, "edges": 20, "path": "g.csv", **change}
    with pytest.raises(UserError, match=where):
        generate(**{**given, "path": tmp_path / given["path"]})
