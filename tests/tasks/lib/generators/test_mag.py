"""The typed random graph: sizes, distinct edges, the same bytes on any number of threads and with any chunks."""

import numba as nb
import numpy as np
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.generators import mag
from superworkflow.tasks.lib.generators.mag import EDGES, NODES, generate_mag


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return generate_mag(0.01, tmp_path_factory.mktemp("mag") / "graph", 7)


def test_sizes_and_ids(graph):
    for name, count in NODES.items():
        ids = pq.read_table(graph / f"nodes-{name}.parquet")["id"].to_pylist()
        assert sorted(map(int, ids)) == list(range(round(count / 100)))
    for each in EDGES:
        table = pq.read_table(graph / f"edges-{each.name}.parquet")
        assert len(table) == round(each.total / 100)
        source, target = (table[end].cast("int64").to_numpy() for end in ("source", "target"))
        drawer, drawn = (target, source) if each.turned else (source, target)
        assert drawer.max() < round(NODES[each.drawer] / 100)
        assert drawn.max() < round(NODES[each.drawn] / 100)
        assert len(np.unique(np.stack([source, target]), axis=1).T) == len(table)
        degrees = np.bincount(drawer, minlength=round(NODES[each.drawer] / 100))
        assert degrees.min() >= each.least
        assert degrees.max() > 1.5 * degrees.mean()
        if each.drawer == each.drawn:
            assert (source != target).all()


def test_years_split_papers_as_the_original_and_features_tell_of_labels(graph):
    papers = pq.read_table(graph / "nodes-paper.parquet")
    years, labels = papers["year"].to_numpy(), papers["labels"].to_numpy()
    assert [(years <= 2017).sum(), (years == 2018).sum(), (years == 2019).sum()] == [6296, 649, 419]
    assert (labels.min(), labels.max()) == (0, 348)
    values = np.stack(papers["feat"].to_numpy())
    assert values.shape == (7364, 128)
    most = np.argmax(np.bincount(labels))
    inside, outside = values[labels == most].mean(axis=0), values[labels != most].mean(axis=0)
    assert np.linalg.norm(inside) > 3 * np.linalg.norm(outside)


def test_the_same_bytes_on_any_number_of_threads_and_with_any_chunks(graph, tmp_path, monkeypatch):
    reported = []
    before = nb.get_num_threads()
    nb.set_num_threads(1)
    monkeypatch.setattr(mag, "CHUNK_NODES", 700)
    try:
        again = generate_mag(0.01, tmp_path / "again", 7, progress=lambda done, total: reported.append((done, total)))
    finally:
        nb.set_num_threads(before)
    files = sorted(file.name for file in graph.iterdir())
    assert files == sorted(file.name for file in again.iterdir())
    assert all((graph / name).read_bytes() == (again / name).read_bytes() for name in files)
    total = sum(round(n / 100) for n in [*NODES.values(), *(e.total for e in EDGES)])
    assert reported[-1] == (total, total)


def test_larger_tables_are_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(mag, "SHARD_ROWS", 3000)
    monkeypatch.setattr(mag, "GROUP_ROWS", 1000)
    made = generate_mag(0.001, tmp_path)
    assert '"edges-cites@2.parquet"' in (made / "schema.pbtxt").read_text()
    parts = [pq.read_table(made / f"edges-cites-0000{shard}-of-00002.parquet") for shard in range(2)]
    assert [len(part) for part in parts] == [3000, 2416]
    assert pq.ParquetFile(made / "edges-cites-00000-of-00002.parquet").num_row_groups == 3


def test_refuses_what_is_out_of_range(tmp_path):
    with pytest.raises(UserError, match=r"0\.001 to 1000"):
        generate_mag(0.0001, tmp_path)
