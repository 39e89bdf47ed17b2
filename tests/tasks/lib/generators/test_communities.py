"""The random graph with communities: degrees, communities, features; the same bytes on any number of threads."""

import numba as nb
import numpy as np
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.generators import communities as _generate_communities
from superworkflow.tasks.lib.generators.communities import generate_communities, generate_csbm

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


def test_csbm_plants_classes_and_features(tmp_path):
    """All vertices have one expected degree; homophily, means and noise are those that were given."""
    classes, homophily, signal = 4, 0.4, 0.3
    folder = generate_csbm(
        NODES, 50_000, tmp_path, 3, communities=classes, width=WIDTH, homophily=homophily, signal=signal
    )
    table, edges = pq.read_table(folder / "features.parquet"), pq.read_table(folder / "edges.parquet")
    values, node = np.stack(table["features"].to_numpy()), table["node"].to_numpy()
    labels = dict(np.loadtxt(folder / "labels.csv", np.int64, delimiter=",", skiprows=1).tolist())
    planted = np.array([labels[each] for each in range(NODES)])
    source, target = edges["source"].to_numpy(), edges["target"].to_numpy()
    same = (planted[source] == planted[target]).mean()
    assert same == pytest.approx(homophily, abs=4 * np.sqrt(0.25 / len(source)))
    degree = np.bincount(np.concatenate([source, target]), minlength=NODES)
    assert degree.min() >= 1
    assert (degree.mean(), degree.var()) == pytest.approx((10, 9), rel=0.06)  # 1 is given, 9 are drawn
    by_class = [values[planted[node] == each] for each in range(classes)]
    for each in by_class:
        assert np.abs(each.mean(axis=0)) == pytest.approx(signal, abs=5 / np.sqrt(len(each)))
        assert each.std(axis=0) == pytest.approx(1, abs=0.05)
    assert len({tuple(np.sign(each.mean(axis=0))) for each in by_class}) == classes


@pytest.mark.parametrize(("change", "where"), [({"homophily": 0.01}, "homophily"), ({"signal": -1}, "signal")])
def test_csbm_refuses_what_is_out_of_range(tmp_path, change, where):
    with pytest.raises(UserError, match=where):
        generate_csbm(100, 200, tmp_path, **change)


@pytest.mark.parametrize(("change", "where"), [({"communities": 51}, "communities"), ({"width": 0}, "width")])
def test_refuses_what_is_out_of_range(tmp_path, change, where):
    with pytest.raises(UserError, match=where):
        generate_communities(100, 200, tmp_path, **change)
