"""Vectors as a table of LanceDB and an index of FAISS: neighbours in them are those of the vectors."""

import importlib.util
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.store import Store
from superworkflow.infra.storage.warehouse.sinks import check_sink, write_table

VECTORS = np.random.default_rng(3).normal(size=(90, 8)).astype(np.float32)
NAMES = [f"v{i}" for i in range(90)]


def _tables(rows: int = 90) -> list[pa.Table]:
    """Two pieces, the second of which may be empty."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS[:rows].ravel()), 8)
    whole = pa.table({"node": NAMES[:rows], "vector": lists})
    return [whole[:50], whole[50:]]


def _nearest(row: int, rows: int = 90) -> list[str]:
    unit = VECTORS[:rows] / np.linalg.norm(VECTORS[:rows], axis=1, keepdims=True)
    return [NAMES[place] for place in np.argsort(-unit @ unit[row], kind="stable")[:4]]


def test_lance(store: Store) -> None:
    lancedb = pytest.importorskip("lancedb")
    target = store.root.join("served", "vectors.lance").uri
    for rows in (90, 50):  # the second takes the place of the first
        assert write_table(_tables(rows), target) == rows
        options = None if store.root.local_path else {"allow_http": "true"}
        table = lancedb.connect(store.root.join("served").uri, storage_options=options).open_table("vectors")
        found = table.search(VECTORS[7]).distance_type("cosine").limit(4).to_arrow()
        assert found["node"].to_pylist() == _nearest(7, rows)
        assert table.count_rows() == rows


def test_faiss(store: Store) -> None:
    faiss = pytest.importorskip("faiss")
    target = store.root.join("served", "vectors.faiss")
    for rows in (90, 50):
        assert write_table(_tables(rows), target.uri) == rows
        assert target.walk_files() == ["index.faiss", "rows.parquet"]
        with target.join("index.faiss").open() as stream:
            index = faiss.deserialize_index(np.frombuffer(stream.read(), dtype=np.uint8))
        with target.join("rows.parquet").open() as stream:
            names = pq.read_table(stream)["node"].to_pylist()
        _, found = index.search(VECTORS[7:8] / np.linalg.norm(VECTORS[7]), 4)
        assert [names[place] for place in found[0]] == _nearest(7, rows)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"node": ["a"], "label": ["b"]}, "has not one column of vectors"),
        ({"node": ["a", "b"], "vector": [[1.0, 2.0], [1.0]]}, "vectors have not one length (got 'vector')"),
        ({"node": ["a", "b"], "vector": [[1.0, 2.0], None]}, "vectors have not one length (got 'vector')"),
        ({"node": [], "vector": pa.array([], pa.list_(pa.float32()))}, "the result has no row"),
    ],
)
@pytest.mark.parametrize("ending", ["lance", "faiss"])
def test_refused(columns: dict[str, list[object]], words: str, ending: str, tmp_path: Path) -> None:
    pytest.importorskip({"lance": "lancedb"}.get(ending, ending))
    with pytest.raises(UserError) as refused:
        write_table([pa.table(columns)], f"{tmp_path}/served.{ending}")
    assert words in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["served.parquet", "served.faiss"])
def test_a_folder_of_others_is_kept(store: Store, name: str) -> None:
    """Data in several files often are a folder whose name ends in .parquet."""
    if name.endswith("faiss"):
        pytest.importorskip("faiss")
    store.root.join(name).make()
    theirs = store.root.join(name, "part-0.parquet")
    theirs.write_atomic("theirs")
    with pytest.raises(UserError, match=r"a folder with other files is not replaced \(got 'part-0.parquet'\)"):
        write_table(_tables(), store.root.join(name).uri)
    if store.root.local_path is not None:
        with pytest.raises(UserError, match="a folder with other files is not replaced"):
            check_sink(store.root.join(name).uri)  # before anything is computed
    assert store.root.join(name).walk_files() == ["part-0.parquet"]
    assert theirs.read_text() == "theirs"


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"v\.lance: needs lancedb, which is not installed.*superworkflow\[vectors\]"):
        check_sink("v.lance")
    assert Location.of("v.lance").local_path
