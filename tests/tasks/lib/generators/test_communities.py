"""The random graph with communities: degrees, communities, features; the same bytes on any number of threads."""

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.generators import communities as _generate_communities
from superworkflow.tasks.lib.generators.communities import generate_communities

NODES, COMMUNITIES, WIDTH = 10_000, 30, 20


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("communities")
    return generate_communities(NODES, 100_000, folder, 7, communities=COMMUNITIES, width=WIDTH)


def test_degrees_follow_a_power_law_and_most_edges_stay_in_their_community(graph):
    edges = pq.read_table(graph / "edges.parquet")
    source, target = edges["source"].to_numpy(), edges["target"].to_numpy()
    assert len(source) == 100_000
    assert (source != target).all()
    assert len(np.union1d(source, target)) == NODES  # none has features or a label and no edge
    node, label = np.loadtxt(graph / "labels.csv", np.int64, delimiter=",", skiprows=1).T
    assert (np.sort(node) == np.arange(NODES)).all()
    community = np.empty(NODES, np.int64)
    community[node] = label
    sizes = np.bincount(community)
    assert (len(sizes), sizes.max() - sizes.min()) == (COMMUNITIES, 1)
    assert abs((community[source] == community[target]).mean() - (0.7 + 0.3 / COMMUNITIES)) < 0.01
    degree = np.sort(np.bincount(np.concatenate([source, target]), minlength=NODES))[::-1]
    tail = degree[degree >= 3 * degree.mean()][100:]
    slope = np.polyfit(np.log(np.arange(101, 101 + len(tail))), np.log(tail), 1)[0]
    assert slope == pytest.approx(-1 / 1.5, abs=0.15)


def test_features_say_little_of_one_node_and_more_of_many(graph):
    table = pq.read_table(graph / "features.parquet")
    values, node = np.stack(table["features"].to_numpy()), table["node"].to_numpy()
    labels = dict(np.loadtxt(graph / "labels.csv", np.int64, delimiter=",", skiprows=1).tolist())
    community = np.array([labels[each] for each in node.tolist()])
    means = np.stack([values[community == each].mean(axis=0) for each in range(COMMUNITIES)])
    nearest = ((values[:, None, :] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert 1.5 / COMMUNITIES < (nearest == community).mean() < 0.3


def test_the_same_bytes_on_one_thread(graph, tmp_path, monkeypatch):
    before = nb.get_num_threads()
    nb.set_num_threads(1)
    try:
        again = generate_communities(NODES, 100_000, tmp_path, 7, communities=COMMUNITIES, width=WIDTH)
    finally:
        nb.set_num_threads(before)
    for name in ("edges.parquet", "features.parquet", "labels.csv"):
        assert (graph / name).read_bytes() == (again / name).read_bytes()
    monkeypatch.setattr(_generate_communities, "MOST_LABELS", 100)
    other = generate_communities(NODES, 100_000, tmp_path, 8, communities=COMMUNITIES, width=WIDTH)
    assert (graph / "edges.parquet").read_bytes() != (other / "edges.parquet").read_bytes()
    assert len((other / "labels.csv").read_text().splitlines()) == 101


@pytest.mark.parametrize(("change", "where"), [({"communities": 51}, "communities"), ({"width": 0}, "width")])
def test_refuses_what_is_out_of_range(tmp_path, change, where):
    with pytest.raises(UserError, match=where):
        generate_communities(100, 200, tmp_path, **change)
